import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;

/**
 * A system class loader over the jars of a folder, of which Beam's scan of the class path sees some.
 *
 * <p>Beam's job server uploads to Flink, for each job, every jar that it finds on its class path. A
 * cluster that has the same jars needs none of them.
 *
 * <pre>java -Dhidden.jars=FOLDER -Dseen.jars=FILE:FILE -Djava.system.class.loader=HiddenJars -cp CLASSES MAIN</pre>
 */
public class HiddenJars extends ClassLoader {
  private final URLClassLoader jars;

  public HiddenJars(ClassLoader parent) throws IOException {
    super(parent);
    List<URL> urls = new ArrayList<>();
    for (File file : new File(System.getProperty("hidden.jars")).listFiles()) {
      urls.add(file.toURI().toURL());
    }
    jars = new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
  }

  /** What ClassGraph, by which Beam scans, asks class loaders for that it does not know. */
  public String getClassPath() {
    return System.getProperty("seen.jars");
  }

  @Override
  protected Class<?> findClass(String name) throws ClassNotFoundException {
    try (InputStream stream = jars.getResourceAsStream(name.replace('.', '/') + ".class")) {
      if (stream == null) {
        throw new ClassNotFoundException(name);
      }
      byte[] code = stream.readAllBytes();
      return defineClass(name, code, 0, code.length);
    } catch (IOException error) {
      throw new ClassNotFoundException(name, error);
    }
  }

  @Override
  protected URL findResource(String name) {
    return jars.findResource(name);
  }

  @Override
  protected Enumeration<URL> findResources(String name) throws IOException {
    return jars.findResources(name);
  }
}

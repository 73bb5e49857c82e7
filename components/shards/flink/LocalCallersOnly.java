import java.io.IOException;
import java.net.InetAddress;
import java.security.Permission;

/**
 * Allows everything but connections from other machines.
 *
 * <p>Beam's job server and its services for workers listen on all interfaces, whatever host they
 * are given, and ask for no credentials: whoever reaches them can run code.
 *
 * <pre>java -Djava.security.manager=LocalCallersOnly …</pre>
 */
@SuppressWarnings("removal")
public class LocalCallersOnly extends SecurityManager {
  @Override
  public void checkPermission(Permission permission) {}

  @Override
  public void checkPermission(Permission permission, Object context) {}

  @Override
  public void checkAccept(String host, int port) {
    boolean isLocal;
    try {
      isLocal = InetAddress.getByName(host).isLoopbackAddress();
    } catch (IOException error) {
      isLocal = false;
    }
    if (!isLocal) {
      // Netty stops listening after any error but an IOException, which cannot be declared here.
      LocalCallersOnly.<RuntimeException>raise(
          new IOException("rejected a connection from " + host));
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> void raise(Throwable error) throws E {
    throw (E) error;
  }
}

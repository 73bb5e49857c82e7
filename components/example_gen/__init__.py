"""ExampleGen: data files to tf.Examples, columnar."""

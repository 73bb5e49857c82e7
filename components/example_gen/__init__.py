"""ExampleGen: CSV and Parquet to tf.Examples, columnar."""

"""ExampleGen: data files to tf.Examples, columnar."""

HASHES_VARIABLE = "STRATEGOS_FILE_HASHES"
"""Name of the environment variable with the file of the plan's hashes of data files.

Without it, on a cluster, ExampleGen does not compare the files with the plan: they
would be read once more.
"""

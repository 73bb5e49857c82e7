"""Examples as TFRecord files: encoding, writing, reading."""

FILE_FORMAT = "tfrecords_gzip"
"""How artifacts of examples name the format of these files."""

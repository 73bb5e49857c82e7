"""Examples as TFRecord files: encoding, writing, reading."""

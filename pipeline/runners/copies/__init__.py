"""Local copies of objects in a store that TensorFlow cannot open, e.g. S3."""

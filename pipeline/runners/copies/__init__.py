"""Local copies of what is in an object store that TensorFlow cannot open."""

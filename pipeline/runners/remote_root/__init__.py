"""A root in an object store: copies for executors, and TFX's view of the store."""

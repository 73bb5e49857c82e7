"""The contents of a root: local state, lock, ML Metadata."""

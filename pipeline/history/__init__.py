"""Past runs, read from ML Metadata."""

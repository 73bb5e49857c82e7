"""Plans a run before its first node: spans, cached nodes and parameters."""

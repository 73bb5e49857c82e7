"""The contents of a root: local state, lock, ML Metadata."""

RUN_CONTEXT = "pipeline_run"
"""Type of the context that ML Metadata has for each run, by TFX."""

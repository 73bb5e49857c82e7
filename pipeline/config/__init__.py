"""The settings of a pipeline: sections of the YAML, loading, problems."""

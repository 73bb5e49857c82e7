"""The settings of a pipeline: sections of the YAML, loading, problems."""

MAIN_FILE = "pipeline.yaml"
"""The main YAML of a folder where no other is named."""

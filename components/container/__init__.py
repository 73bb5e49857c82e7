"""Steps of a compiled pipeline: what runs in the containers of a cluster."""

ENTRY = ["python", "-m", "strategos.components.container.entry"]
"""The command of a step that runs an executor."""

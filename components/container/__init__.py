"""Steps of a compiled pipeline, and how processes that run nodes begin."""

ENTRY = ["python", "-m", "strategos.components.container.entry"]
"""The command of a step that runs an executor."""

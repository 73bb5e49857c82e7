"""Pushes a blessed model to the folder that a model server reads, atomically."""

NEWEST_VARIABLE = "STRATEGOS_NEWEST_VERSION"
"""Environment variable: the version that was live at the start of the run; 0: none."""

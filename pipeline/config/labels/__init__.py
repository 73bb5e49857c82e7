"""The label, and the settings that must fit it."""

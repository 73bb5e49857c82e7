"""The target of a model: the label of the settings, as every component reads it."""

"""What a model predicts: the label of the settings, as every component reads it."""

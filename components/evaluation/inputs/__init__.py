"""What an evaluation reads: the models, and labels, weights and slices of rows."""

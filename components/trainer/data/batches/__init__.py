"""The rows of a batch: of similar length, with labels and weights."""

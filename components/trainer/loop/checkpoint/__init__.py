"""The files of checkpoints, and the interval between them."""

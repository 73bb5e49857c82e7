"""One training, from its request to the exported model."""

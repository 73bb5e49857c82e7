"""Training loops, their callbacks, progress and checkpoints."""

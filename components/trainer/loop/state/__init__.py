"""The state of a training in a checkpoint: variables in files, and callbacks."""

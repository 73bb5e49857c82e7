"""The user's model: its context, its module, and checks before training."""

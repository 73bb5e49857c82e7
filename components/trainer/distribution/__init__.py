"""The devices and tasks of a training, and the strategy that fits them."""

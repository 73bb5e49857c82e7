"""How the optimizer that `build_model` makes is changed by settings."""

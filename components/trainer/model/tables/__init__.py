"""Tables of a model: variables whose rows belong to values of a feature."""

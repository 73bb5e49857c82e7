"""What a model learns: checks of labels and weights, and weights of classes."""

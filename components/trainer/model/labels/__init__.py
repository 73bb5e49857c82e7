"""Labels of a training: checks of labels and weights, and weights of classes."""

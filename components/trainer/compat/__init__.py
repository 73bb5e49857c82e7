"""The private APIs of TensorFlow and Keras that are used here, and nothing else."""

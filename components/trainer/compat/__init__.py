"""Every private API of TensorFlow and Keras in use, and nothing else."""

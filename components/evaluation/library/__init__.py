"""Metrics of TFMA and Keras, by the name of their class."""

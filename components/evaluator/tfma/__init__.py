"""Evaluations in the form of TensorFlow Model Analysis."""

"""Inputs of an evaluation: the models, and labels, weights and slices of rows."""

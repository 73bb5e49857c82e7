"""Starts a model from the weights of an earlier one."""

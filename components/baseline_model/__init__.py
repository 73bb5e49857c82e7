"""Imports the model in production, for comparison with a candidate."""

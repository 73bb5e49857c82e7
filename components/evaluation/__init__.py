"""Metrics of a model by slice, from scores and labels, and the verdict on it."""

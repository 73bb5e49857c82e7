"""Judges the exported model on the eval split: metrics, slices, bounds, blessing."""

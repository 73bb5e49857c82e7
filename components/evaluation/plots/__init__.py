"""Counts of a model's answers that its plots are drawn from."""

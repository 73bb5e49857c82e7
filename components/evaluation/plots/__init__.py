"""Counts of a model's answers that its plots are drawn from."""

FILE = "answers.json"
"""Has the points; a name that begins with `plots` would be read by TFMA as its own."""

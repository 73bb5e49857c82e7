"""Confidence intervals of metrics by the Poisson bootstrap."""

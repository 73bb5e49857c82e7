"""Entries of `evaluator.metrics`."""

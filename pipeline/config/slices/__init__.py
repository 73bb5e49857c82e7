"""The entries of `evaluator.slices`."""

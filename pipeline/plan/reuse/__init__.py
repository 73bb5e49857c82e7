"""Keeps damaged artifacts and results of other user code out of the cache."""

"""Reuse from earlier runs: compiled pipelines, and artifacts by the cache.

Keeps damaged artifacts and results of other user code out of the cache.
"""

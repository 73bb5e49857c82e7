"""Metrics by query: of rows that are ranked against the other rows of their query."""

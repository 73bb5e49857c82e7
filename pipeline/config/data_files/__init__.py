"""Sections of `data`: how files are read, how rows are divided."""

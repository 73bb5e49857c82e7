"""Findings about rows while they are written: repeated, empty, rejected."""

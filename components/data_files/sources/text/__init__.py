"""Formats of text: CSV and JSON lines."""

"""Imports the curated schema, checked."""

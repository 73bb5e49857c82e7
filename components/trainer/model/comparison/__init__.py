"""Compares two builds of a model: their structure and their answers."""

"""Checks before a run that need files, data or this machine."""

"""Decides what a run will do, before its first node."""

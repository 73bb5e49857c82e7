"""Pushes a blessed model to the folder that a model server reads, atomically."""

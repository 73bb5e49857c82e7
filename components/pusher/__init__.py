"""Puts a blessed model where it is served, whole or not at all."""

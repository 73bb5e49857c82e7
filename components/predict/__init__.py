"""Predicts rows with a pushed model: one by one, from a server, or many files."""

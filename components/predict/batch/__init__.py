"""Batch prediction: rows of files of any size, to files of predictions."""

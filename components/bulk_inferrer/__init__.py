"""Predicts files with the model of a run, once it is blessed and pushed."""

"""The record of a run's settings, code, data and stack, kept beside its log."""

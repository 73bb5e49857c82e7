"""Trainings that run as jobs of a batch system, whichever it is."""

"""The sections of a report on a run."""

"""The outcome of an evaluation: checks of bounds, findings, summary and blessing."""

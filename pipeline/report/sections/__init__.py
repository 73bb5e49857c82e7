"""The sections of a report: what each says of a run."""

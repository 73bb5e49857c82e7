"""Terminal output: live progress, reports, tables."""

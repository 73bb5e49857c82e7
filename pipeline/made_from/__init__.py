"""What a run was made from: its settings, code, data and stack, kept beside its log."""

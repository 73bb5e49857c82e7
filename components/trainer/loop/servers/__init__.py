"""Training with variables on parameter servers."""

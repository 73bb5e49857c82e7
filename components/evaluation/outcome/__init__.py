"""What an evaluation comes to: checks of bounds, findings, summary and blessing."""

"""What a run will do, decided before its first node."""

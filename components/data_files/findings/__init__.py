"""What is found out about rows while they are written: repeated, empty, rejected."""

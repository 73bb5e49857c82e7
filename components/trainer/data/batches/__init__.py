"""What a batch is made of: rows of similar length, and their weights."""

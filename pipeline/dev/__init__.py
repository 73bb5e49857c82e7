"""`strategos dev`: runs after each change, on all rows or on a sample."""

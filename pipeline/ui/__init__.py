"""`strategos ui`: pages over the history of a root, which only read."""

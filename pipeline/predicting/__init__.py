"""`strategos predict`: a few rows to the terminal, or files to a folder."""

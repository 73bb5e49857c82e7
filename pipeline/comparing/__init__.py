"""`strategos runs compare` and `reproduce`: two runs, and a run made again."""

"""Statistics of rows by TFDV's generators, in accumulators that merge."""

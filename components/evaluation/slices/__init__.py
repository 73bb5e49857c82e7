"""Which slices an evaluation has, and which of them a row is in."""

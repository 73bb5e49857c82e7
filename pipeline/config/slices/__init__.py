"""Slicings: entries of `slices`, and the section `statistics`."""

"""What is sliced by: entries of `slices`, and the section `statistics`."""

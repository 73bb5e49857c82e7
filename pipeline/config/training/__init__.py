"""Parts of the section `trainer`."""

"""Transform's output besides its examples: the graph, and the files beside it."""

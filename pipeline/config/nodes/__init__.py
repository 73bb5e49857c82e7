"""The user's own nodes: their settings, and their order in the graph."""

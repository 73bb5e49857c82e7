"""Nodes of the user's own: their settings, and where they stand in the graph."""

"""The declarative side: the YAML surface, the graph, the runners, what happened."""

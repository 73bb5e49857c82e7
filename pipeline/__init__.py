"""The declarative side: YAML settings, pipeline graph, runners and run history."""

"""A model on several replicas: its losses, its rows, and what each has for itself."""

"""A model on several replicas: its losses, uneven batches, values of each replica."""

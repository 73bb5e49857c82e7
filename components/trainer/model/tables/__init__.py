"""Tables of a model: variables with rows for values of a feature, e.g. embeddings."""

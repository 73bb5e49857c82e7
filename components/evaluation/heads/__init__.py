"""Several heads of a model: the names of their metrics, and the verdict on all."""

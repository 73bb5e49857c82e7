"""Gates: nodes that stop a run after a measurement."""

"""AnomalyGate and EvaluationGate: nodes that stop a run after a measurement."""

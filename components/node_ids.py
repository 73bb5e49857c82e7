"""Ids of the nodes: the class names of their components, as TFX derives them."""

from __future__ import annotations

SPAN_VALIDATOR = "SpanValidator"
SPAN_GATE = "SpanGate"
EXAMPLE_GEN = "ExampleGen"
STATISTICS_GEN = "StatisticsGen"
SCHEMA_GEN = "SchemaGen"
IMPORT_SCHEMA_GEN = "ImportSchemaGen"
EXAMPLE_VALIDATOR = "ExampleValidator"
ANOMALY_GATE = "AnomalyGate"
TRANSFORM = "Transform"
TRAINER = "Trainer"
BASELINE_MODEL = "BaselineModel"
EVALUATOR = "Evaluator"
EVALUATION_GATE = "EvaluationGate"
INFRA_VALIDATOR = "InfraValidator"
PUSHER = "Pusher"

ON_ENGINE = (SPAN_VALIDATOR, EXAMPLE_GEN, STATISTICS_GEN, TRANSFORM, EVALUATOR)
"""Nodes whose work on data runs on the engine of the run."""

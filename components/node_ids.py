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

RESOLVE = "Resolve"
"""The first step of a compiled pipeline; `strategos run` has no such node."""

ALL = (
    *(SPAN_VALIDATOR, SPAN_GATE),
    *(EXAMPLE_GEN, STATISTICS_GEN, SCHEMA_GEN, IMPORT_SCHEMA_GEN, EXAMPLE_VALIDATOR),
    *(ANOMALY_GATE, TRANSFORM, TRAINER, BASELINE_MODEL, EVALUATOR, EVALUATION_GATE),
    *(INFRA_VALIDATOR, PUSHER),
)
"""Every node, in the order of the graph."""

ON_ENGINE = (SPAN_VALIDATOR, EXAMPLE_GEN, STATISTICS_GEN, TRANSFORM, EVALUATOR)
"""Nodes whose work on data runs on the engine of the run."""

GATES = {
    SPAN_GATE: "stopped",
    ANOMALY_GATE: "stopped",
    EVALUATION_GATE: "not blessed",
    INFRA_VALIDATOR: "not blessed",
}
"""The outcome of a run that a node has stopped."""

"""Ids of the nodes: the class names of their components, as TFX derives them."""

from __future__ import annotations

from collections.abc import Mapping

SPAN_VALIDATOR = "SpanValidator"
SPAN_GATE = "SpanGate"
EXAMPLE_GEN = "ExampleGen"
STATISTICS_GEN = "StatisticsGen"
DETAILED_STATISTICS = "DetailedStatistics"
SCHEMA_GEN = "SchemaGen"
IMPORT_SCHEMA_GEN = "ImportSchemaGen"
EXAMPLE_VALIDATOR = "ExampleValidator"
ANOMALY_GATE = "AnomalyGate"
TRANSFORM = "Transform"
TRANSFORMED_STATISTICS = "TransformedStatistics"
TRAINER = "Trainer"
BASELINE_MODEL = "BaselineModel"
EVALUATOR = "Evaluator"
EVALUATION_GATE = "EvaluationGate"
INFRA_VALIDATOR = "InfraValidator"
PUSHER = "Pusher"
BULK_INFERRER = "BulkInferrer"

RESOLVE = "Resolve"
"""The first step of a compiled pipeline; `strategos run` has no such node."""

RUN_REPORT = "RunReport"
"""The step of a compiled pipeline that writes the report of the run."""

MODEL_REPORT = "ModelReport"
"""The step of a compiled pipeline that writes the report beside the pushed model."""

ALL = (
    *(SPAN_VALIDATOR, SPAN_GATE),
    *(EXAMPLE_GEN, STATISTICS_GEN, DETAILED_STATISTICS, SCHEMA_GEN),
    *(IMPORT_SCHEMA_GEN, EXAMPLE_VALIDATOR, ANOMALY_GATE, TRANSFORM),
    *(TRANSFORMED_STATISTICS, TRAINER, BASELINE_MODEL, EVALUATOR, EVALUATION_GATE),
    *(INFRA_VALIDATOR, PUSHER, BULK_INFERRER),
)
"""Every node, in the order of the graph."""

REPORTS = (RUN_REPORT, MODEL_REPORT)
"""The steps of a compiled pipeline that nothing follows: they may fail."""

ON_CLUSTER = (RESOLVE, *ALL, *REPORTS)
"""Every step of a compiled pipeline, in the order of the graph."""

FOLLOWS: Mapping[str, tuple[str, ...]] = {
    SPAN_GATE: (SPAN_VALIDATOR,),
    EXAMPLE_GEN: (SPAN_GATE,),
    STATISTICS_GEN: (EXAMPLE_GEN,),
    DETAILED_STATISTICS: (EXAMPLE_GEN,),
    SCHEMA_GEN: (STATISTICS_GEN,),
    EXAMPLE_VALIDATOR: (STATISTICS_GEN, SCHEMA_GEN, IMPORT_SCHEMA_GEN),
    ANOMALY_GATE: (EXAMPLE_VALIDATOR, SCHEMA_GEN, IMPORT_SCHEMA_GEN),
    TRANSFORM: (EXAMPLE_GEN, SCHEMA_GEN, IMPORT_SCHEMA_GEN, ANOMALY_GATE),
    TRANSFORMED_STATISTICS: (TRANSFORM,),
    TRAINER: (SCHEMA_GEN, IMPORT_SCHEMA_GEN, TRANSFORM),
    BASELINE_MODEL: (TRAINER,),
    EVALUATOR: (EXAMPLE_GEN, SCHEMA_GEN, IMPORT_SCHEMA_GEN, TRAINER, BASELINE_MODEL),
    EVALUATION_GATE: (EVALUATOR,),
    INFRA_VALIDATOR: (
        *(EXAMPLE_GEN, SCHEMA_GEN, IMPORT_SCHEMA_GEN, TRAINER, EVALUATION_GATE),
    ),
    PUSHER: (EXAMPLE_GEN, TRAINER, EVALUATOR, INFRA_VALIDATOR),
    BULK_INFERRER: (TRAINER, EVALUATOR, EVALUATION_GATE, PUSHER),
}
"""The nodes that each node follows directly, if the pipeline has them."""

OUTPUTS: Mapping[str, Mapping[str, str]] = {
    SPAN_VALIDATOR: {"anomalies": "ExampleAnomalies"},
    EXAMPLE_GEN: {"examples": "Examples"},
    STATISTICS_GEN: {"statistics": "ExampleStatistics"},
    DETAILED_STATISTICS: {"statistics": "ExampleStatistics"},
    SCHEMA_GEN: {"schema": "Schema"},
    IMPORT_SCHEMA_GEN: {"schema": "Schema"},
    EXAMPLE_VALIDATOR: {"anomalies": "ExampleAnomalies"},
    TRANSFORM: {
        "transformed_examples": "Examples",
        "transform_graph": "TransformGraph",
    },
    TRANSFORMED_STATISTICS: {"statistics": "ExampleStatistics"},
    TRAINER: {"model": "Model", "model_run": "ModelRun"},
    BASELINE_MODEL: {"model": "Model"},
    EVALUATOR: {"blessing": "ModelBlessing", "evaluation": "ModelEvaluation"},
    INFRA_VALIDATOR: {"blessing": "InfraBlessing"},
    PUSHER: {"pushed_model": "PushedModel"},
    BULK_INFERRER: {"inference_result": "InferenceResult"},
}
"""The outputs of each node that has some, with the types of their artifacts."""

ON_ENGINE = (
    *(SPAN_VALIDATOR, EXAMPLE_GEN, STATISTICS_GEN, DETAILED_STATISTICS, TRANSFORM),
    *(TRANSFORMED_STATISTICS, EVALUATOR, BULK_INFERRER),
)
"""Nodes that do their work on data on the engine of the run."""

GATES = {
    SPAN_GATE: "stopped",
    ANOMALY_GATE: "stopped",
    EVALUATION_GATE: "not blessed",
    INFRA_VALIDATOR: "not blessed",
}
"""The outcome of a run that a node has stopped."""

"""SchemaGen: TFX's component with an executor of ours."""

from __future__ import annotations

from tfx.components import SchemaGen as StockSchemaGen
from tfx.dsl.components.base import executor_spec

from strategos.components.schema_gen import executor


class SchemaGen(StockSchemaGen):
    """Infers the schema from the statistics of all splits, as TFX's SchemaGen does.

    Usage:

        schema_gen = SchemaGen(
            statistics=statistics_gen.outputs["statistics"], infer_feature_shape=True
        )

    A column without a value in some split stays a feature, see `executor`.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

"""ExampleValidator: TFX's component with an executor for wide tables."""

from __future__ import annotations

from tfx.components import ExampleValidator as StockExampleValidator
from tfx.dsl.components.base import executor_spec

from strategos.components.example_validator import executor


class ExampleValidator(StockExampleValidator):
    """Finds the same anomalies as TFX's ExampleValidator, and many columns sooner.

    Usage:

        example_validator = ExampleValidator(
            statistics=statistics_gen.outputs["statistics"],
            schema=schema_gen.outputs["schema"],
        )
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

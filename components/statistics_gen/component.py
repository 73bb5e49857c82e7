"""StatisticsGen: TFX's component with an executor that reads columns."""

from __future__ import annotations

from tfx.components.statistics_gen import component
from tfx.dsl.components.base import executor_spec

from strategos.components.statistics_gen import executor


class StatisticsGen(component.StatisticsGen):
    """Computes the same statistics as TFX's StatisticsGen, in a fraction of the time.

    Usage:

        statistics_gen = StatisticsGen(examples=example_gen.outputs["examples"])

    With statistics options, a schema input or a payload other than tf.Example, TFX's
    own executor runs, on Beam.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

"""Base class of executors with Beam pipelines on the engine of the run."""

from __future__ import annotations

import apache_beam as beam
from tfx.dsl.components.base import base_beam_executor

from strategos.components.shards.beam_runners import make_pipeline
from strategos.components.shards.engine import Engine


class EngineExecutor(base_beam_executor.BaseBeamExecutor):
    """An executor that runs its Beam pipelines on the engine of the run.

    TFX puts Beam arguments into the compiled pipeline, and so into the cache keys.
    """

    @property
    def _engine(self) -> Engine:
        return Engine.from_environment()

    def _make_beam_pipeline(self) -> beam.Pipeline:
        return make_pipeline(self._engine)

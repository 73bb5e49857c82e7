"""What executors have in common whose work runs on the engine of the run."""

from __future__ import annotations

import apache_beam as beam
from tfx.dsl.components.base import base_beam_executor

from strategos.components.shards.beam_runners import make_pipeline
from strategos.components.shards.engine import Engine


class EngineExecutor(base_beam_executor.BaseBeamExecutor):
    """An executor whose Beam pipelines run on the engine of the run.

    TFX's way, Beam arguments in the compiled pipeline, would make them part of the
    cache keys.
    """

    @property
    def _engine(self) -> Engine:
        return Engine.from_environment()

    def _make_beam_pipeline(self) -> beam.Pipeline:
        return make_pipeline(self._engine)

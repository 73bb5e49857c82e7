"""The plan of one run: the input of a runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2
    from tfx.proto.orchestration import pipeline_pb2


@dataclass(frozen=True)
class Plan:
    """One run, decided in full except for the order of nodes.

    Attributes:
      run_id: The name of the `pipeline_run` context in ML Metadata.
      ir: The compiled pipeline with its runtime parameters substituted and, for a
        partial run, its nodes marked.
      connection: ML Metadata's.
      events: The run's event file, read by the live view.
      log: The log file for the output of executors.
      facts: The run's properties to record: `spans`, `data` (their fingerprint),
        `settings` (a key), `target`, `keys` (of nodes), `reason`, and `part` for a
        partial run.
      environment: Variables for executors; they change how these run, but no result.
      metadata_wait: Seconds to wait for a server of ML Metadata that does not answer.
      compiled: The file that `ir` was read from.
      request: All that distinguishes this run from others with the same `compiled`.
    """

    run_id: str
    ir: pipeline_pb2.Pipeline
    connection: metadata_store_pb2.ConnectionConfig
    events: Path
    log: Path
    facts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    metadata_wait: float = 0.0
    compiled: Path = Path()
    request: str = ""

    @property
    def root(self) -> str:
        """The folder of all artifacts of the pipeline: a path or a URL."""
        return self.ir.runtime_spec.pipeline_root.field_value.string_value

"""What a training worker is told: plain facts, as JSON, without TensorFlow or TFX."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """Everything that training needs to know; paths instead of artifacts.

    Attributes:
      folder: Where the user's modules lie.
      module: The module that has `build_model`.
      label: Name of the label among the transformed features.
      train_files: Transformed training examples (TFRecord, GZIP where named `.gz`).
      eval_files: Transformed evaluation examples.
      transform_graph: Folder that Transform wrote its graph to.
      schema_file: The schema of the raw data.
      model_dir: Folder that gets `Format-Serving/`, `Format-Weights/`, `trainer.json`.
      log_dir: Folder for TensorBoard's events.
      batch_size: Rows of a global batch, whatever the number of replicas.
      epochs: Passes over the training examples.
      seed: Of weights, order and everything random.
      hyperparameters: The user's own, for `build_model`.
      distribution: `{"strategy": …}`, see `strategy.py`.
      callbacks: `{"early_stopping": {…}, "tensorboard": bool}`.
    """

    folder: str
    module: str
    label: str
    train_files: tuple[str, ...]
    eval_files: tuple[str, ...]
    transform_graph: str
    schema_file: str
    model_dir: str
    log_dir: str
    batch_size: int
    epochs: int
    seed: int
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    distribution: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    callbacks: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerSpec:
        """The inverse of `to_json`."""
        files = {key: tuple(values[key]) for key in ("train_files", "eval_files")}
        return cls(**{**values, **files})

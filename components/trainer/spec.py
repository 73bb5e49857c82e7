"""The training as plain data, which a launcher hands to a worker as JSON.

Imports neither TensorFlow nor TFX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from strategos.components.targets.label import Label

CACHE_LIMIT = 10**9
"""Default limit for the parsed examples of a split kept in memory, in bytes."""

CHECKPOINT_MARK = "state.json"
"""The last file of a complete checkpoint, a folder in `WorkerSpec.checkpoint_dir`."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything besides data, model and strategy that changes the result of training.

    The settings of the same names in `trainer`, which describes them and takes its
    defaults from here. `cache_limit` is in bytes, `evaluate_every` in steps. `phases`
    lists the arguments of `phases.Phase`. `keras` is 3 if `tf.keras` is Keras 3 in
    the processes of the training, and None if it is tf-keras.
    """

    keras: Literal[3] | None = None
    callbacks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    phases: Sequence[Mapping[str, Any]] = ()
    last_batch: Literal["keep", "drop"] = "keep"
    scale_learning_rate: Literal["none", "linear", "sqrt"] = "none"
    base_batch_size: int | None = None
    warm_up_steps: int = 0
    accumulate_steps: int | None = None
    evaluate_every: int | None = None
    mixed_precision: Literal["bfloat16", "float16"] | None = None
    jit_compile: bool = False
    steps_per_execution: int | None = None
    deterministic: bool = False
    cache_limit: int = CACHE_LIMIT
    bucket_by: str | None = None
    class_weight: Mapping[str, float] | Literal["balanced"] | None = None


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """Inputs, outputs and settings of one training; paths instead of artifacts.

    Attributes:
      folder: Folder of the user's modules.
      module: The module that has `build_model` or `run_fn`.
      label: The label among the transformed features, as `Label.text`.
      weight: Name of the transformed feature that weights the rows; "" for none.
      train_files: Transformed training examples (TFRecord, GZIP where named `.gz`).
      eval_files: Transformed examples that training evaluates on.
      transform_graph: Folder of Transform's output graph.
      schema_file: The schema of the raw data.
      model_dir: Folder that gets `Format-Serving/`, `Format-Weights/`, `trainer.json`.
      log_dir: Folder for TensorBoard's events and the CSV history.
      checkpoint_dir: Folder of this training's checkpoints; later runs with the same
        data, settings and code use the same folder.
      batch_size: Rows of a global batch, whatever the number of replicas.
      epochs: Passes over the training examples.
      seed: Seed of initial weights, data order and everything else random.
      hyperparameters: The user's own settings, for `build_model`.
      distribution: Strategy and devices, from `trainer.distribution`.
      settings: Everything else that changes the result.
      warm_start: `Format-Weights` of an earlier model to start from, or "".
      null_values: Spellings of a missing number in the data, `data.null_values`.
      reading: How the data files are written: JSON of `sources.reading.Reading`.
      eval_split: Split of `eval_files`: `validation`, or `eval` if there is none.
      train_rows: Number of rows that were written to `train_files`; 0 if unknown.
      eval_rows: Number of rows that were written to `eval_files`; 0 if unknown.
      files: Files that the module needs, `trainer.files`, relative to `folder`.
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
    checkpoint_dir: str
    batch_size: int
    epochs: int
    seed: int
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    distribution: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Settings = dataclasses.field(default_factory=Settings)
    warm_start: str = ""
    null_values: tuple[str, ...] = ()
    reading: str = "{}"
    eval_split: str = "eval"
    train_rows: int = 0
    eval_rows: int = 0
    files: tuple[str, ...] = ()
    weight: str = ""

    @property
    def target(self) -> Label:
        """The label."""
        return Label.of(self.label)

    def with_inputs(
        self, at: Callable[[str], str], *, examples: bool = True
    ) -> WorkerSpec:
        """This training with its inputs elsewhere.

        Args:
          at: Returns where the file, pattern or folder at a path is; "" for "".
          examples: Whether the examples are elsewhere, too.
        """
        files = self.train_files, self.eval_files
        moved = (tuple(map(at, some)) if examples else some for some in files)
        train_files, eval_files = moved
        return dataclasses.replace(
            self,
            train_files=train_files,
            eval_files=eval_files,
            transform_graph=at(self.transform_graph),
            schema_file=at(self.schema_file),
            warm_start=at(self.warm_start),
        )

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerSpec:
        """Builds a spec from the values that `to_json` returned."""
        texts = ("train_files", "eval_files", "null_values", "files")
        tuples = {key: tuple(values.get(key, ())) for key in texts}
        section = values.get("settings", {})
        settings = Settings(**{**section, "phases": tuple(section.get("phases", ()))})
        return cls(**{**values, **tuples, "settings": settings})

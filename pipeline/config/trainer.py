"""The `trainer` section: the model and its training.

Settings that change results become parameters of the Trainer: `Trainer.settings`, and
`Distribution.for_results` in `distribution.py`. All others (launcher, time-outs,
restarts, checkpoints) become its `Operation`, which caching never compares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import InitErrorDetails

from strategos.components.errors import UserError
from strategos.components.exported import WEIGHTS_DIR
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.distribution.batch_checks import (
    SEVERAL_STEPS,
    check_even_for_each,
    check_parts,
    check_replicas,
)
from strategos.components.trainer.distribution.strategy_limits import NOT_ON_SERVERS
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.phases import check_epochs
from strategos.components.trainer.spec import Settings
from strategos.pipeline.config.cluster.sections import Kubeflow, Vertex
from strategos.pipeline.config.distribution import Distribution
from strategos.pipeline.config.problems import received, reject, reject_at
from strategos.pipeline.config.training.callbacks import Callbacks
from strategos.pipeline.config.training.optimizer import Optimizer, conflicts
from strategos.pipeline.config.training.phases import Phase, PhaseName, total_epochs
from strategos.pipeline.config.types import (
    LATEST,
    ClassFactors,
    EverySteps,
    Hyperparameters,
    Interval,
    ModelPath,
    Module,
    NotNegative,
    PathText,
    Positive,
    Section,
    Size,
    Text,
    Texts,
    interval,
    seconds,
    size,
)


class Checkpoint(Section):
    """Checkpoints, from which an interrupted training resumes."""

    every: Interval = Field(
        Operation.checkpoint_every,
        description="Interval between checkpoints, in time or steps. `auto`: chosen "
        "from the time that a checkpoint takes and the interruptions so far.",
    )
    keep: Positive = Field(
        Operation.checkpoint_keep, description="Number of newest checkpoints that stay."
    )


class Debug(Section):
    """Aids for finding faults, which never change the result of training."""

    check_numerics: bool = Field(
        Operation.check_numerics,
        description="Whether each operation is checked for NaN and infinity. Training "
        "then takes a multiple of the time.",
    )
    dump: PathText | None = Field(
        None,
        description="Local folder for what TensorFlow's debugger records of each task: "
        "the graphs, and the newest 1,000 results of operations, for `strategos "
        "tensorboard --dump FOLDER`. null: nothing is recorded.",
    )

    @field_validator("dump")
    @classmethod
    def _local(cls, dump: str | None) -> str | None:
        if dump and is_remote(dump):
            raise reject(received=received(dump), expected="a folder on a local disk")
        return dump


class Trainer(Section):
    """How the model is built and trained."""

    module: Module = Field(
        description="Module with `build_model(context)`, or with `run_fn`."
    )
    files: Texts = Field(
        (),
        description="Files, folders or globs, relative to the YAML, on which the model "
        "or its training depends in a way that a run cannot record. Their contents are "
        "part of the cache key.",
    )
    batch_size: Positive = Field(
        256, description="Global batch size: rows per step, over all replicas together."
    )
    epochs: Positive = Field(
        5,
        description="Passes over the training rows. With `phases`, the sum of theirs.",
    )
    phases: dict[PhaseName, Phase] = Field(
        default_factory=dict,
        description="Phases of the training by name, in their order: each trains a "
        "choice of layers, with an optimizer of its own.",
    )
    evaluate_every: EverySteps | None = Field(
        None,
        description="Number of steps after which the model is evaluated, such as `500 "
        "steps`. Each evaluation ends an epoch of Keras: history, callbacks and their "
        "patience count evaluations. By default, after each pass over the rows.",
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        1, description="Seed of the initial weights and of the order of rows."
    )
    keras: Literal[3] | None = Field(
        Settings.keras,
        description="3: `tf.keras` in `module` is Keras 3. By default, it is tf-keras.",
    )
    hyperparameters: Hyperparameters = Field(
        default_factory=dict,
        description="Values that `build_model` reads from `context.hyperparameters`.",
    )
    distribution: Distribution = Field(
        default_factory=Distribution,
        description="Devices and processes that train the model.",
    )
    checkpoint: Checkpoint = Field(
        default_factory=Checkpoint,
        description="Checkpoints, from which an interrupted training resumes.",
    )
    debug: Debug = Field(
        default_factory=Debug, description="Aids for finding faults in the model."
    )
    callbacks: Callbacks = Field(
        default_factory=Callbacks,
        description="Early stopping, the best epoch, TensorBoard and the like.",
    )
    optimizer: Optimizer = Field(
        default_factory=Optimizer,
        description="Clipping of gradients, and averages of weights.",
    )
    last_batch: Literal["keep", "drop"] = Field(
        Settings.last_batch,
        description="Whether an epoch trains on its last, smaller batch.",
    )
    class_weight: Literal["balanced"] | ClassFactors | None = Field(
        None,
        description="Factor of the weight of each training row, by the value of its "
        "label in the data: `{0: 1, 1: 5}`; 1 for others. `balanced`: the number of "
        "rows divided by that of the classes and by the rows of the class. Validation "
        "and evaluation do without it.",
    )
    scale_learning_rate: Literal["none", "linear", "sqrt"] = Field(
        Settings.scale_learning_rate,
        description="How the learning rate grows with the batch: `linear` multiplies "
        "it by `batch_size` / `base_batch_size`, `sqrt` by the square root of that.",
    )
    base_batch_size: Positive | None = Field(
        Settings.base_batch_size,
        description="Batch size that the model's learning rate was chosen for. By "
        "default, the batch of one replica.",
    )
    warm_up_steps: NotNegative = Field(
        Settings.warm_up_steps,
        description="Number of first steps in which the learning rate rises from zero.",
    )
    accumulate_steps: Positive | None = Field(
        Settings.accumulate_steps,
        description="Number of parts in which each replica computes its batch, one "
        "after the other, before one update: the result of the whole batch in the "
        "memory of a part. `batch_size` stays the rows of an update. By default, the "
        "whole batch at once.",
    )
    mixed_precision: Literal["bfloat16", "float16"] | None = Field(
        Settings.mixed_precision,
        description="Type in which layers compute; variables stay float32.",
    )
    jit_compile: bool = Field(
        Settings.jit_compile, description="Whether XLA compiles the training step."
    )
    steps_per_execution: Positive | None = Field(
        Settings.steps_per_execution,
        description="Number of steps that one call of TensorFlow runs. By default, on "
        "one device up to 32, as far as they take a twentieth of a second; 1 if a "
        "callback looks at single batches, or the model has a `train_step` of its own.",
    )
    deterministic: bool = Field(
        Settings.deterministic,
        description="Whether to use only kernels whose results repeat bit for bit.",
    )
    cache_limit: Size = Field(
        "1GB",
        description="Size of a split up to which its examples stay in memory. Numbers "
        "of fixed size are parsed to a temporary file if they take more than 64 MiB. "
        "If its disk is full, they are parsed anew in every epoch.",
    )
    bucket_by: Text | None = Field(
        Settings.bucket_by,
        description="Transformed feature of varying length: rows of similar length "
        "come into the same batch, so that little of it is padding. By default, "
        "batches are random.",
    )
    warm_start: ModelPath | None = Field(
        None,
        description="Model to start from: `latest` for the newest pushed one, or the "
        "folder of a Model artifact.",
    )
    fresh_every: Positive | None = Field(
        None,
        description="With `warm_start: latest`, every how many models one is trained "
        "from fresh weights: with 3, every third. By default, only the first.",
    )
    compare_fresh: bool = Field(
        False,
        description="With `warm_start: latest`, whether `strategos retrain` trains "
        "each candidate from fresh weights, too, and goes on with the better one.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_epochs(cls, values: Any) -> Any:
        """Adds up the epochs of the phases, unless `epochs` is set."""
        epochs = total_epochs(values.get("phases")) if isinstance(values, dict) else 0
        return {**values, "epochs": values.get("epochs", epochs)} if epochs else values

    def _problems(self) -> Iterator[InitErrorDetails]:
        if self.debug.dump and self.jit_compile:
            cause = "TensorFlow's debugger sees no operation that XLA compiles"
            yield reject_at(("debug", "dump"), cause, remedy="Remove `jit_compile`.")
        elsewhere = self.distribution.strategy in ("parameter_server", "tpu")
        if self.debug.dump and elsewhere:
            cause = "TensorFlow's debugger records no operation on other machines"
            remedy = "Look for the fault on one device."
            yield reject_at(("debug", "dump"), cause, remedy=remedy)
        replicas = self.distribution.known_replicas
        too_small = _rejected("batch_size", check_replicas, self.batch_size, replicas)
        yield from too_small or self._undivided()
        epochs = None if self.evaluate_every else self.epochs
        last = list(self.phases.values())[-1:]
        choosing = [self.callbacks.best_checkpoint, self.callbacks.early_stopping]
        choosing += [phase.early_stopping for phase in last]
        yield from conflicts(self.optimizer, epochs, any(choosing))
        if self.callbacks.reduce_learning_rate and self.warm_up_steps:
            yield reject_at(
                ("callbacks", "reduce_learning_rate"),
                "needs a constant learning rate, but `warm_up_steps` changes it",
                remedy="Remove one of the two settings.",
            )
        if self.base_batch_size and self.scale_learning_rate == "none":
            yield reject_at(
                ("base_batch_size",),
                "has no effect without `scale_learning_rate`",
                remedy="Set `scale_learning_rate` to `linear` or `sqrt`, or remove "
                "`base_batch_size`.",
            )
        for key in ("fresh_every", "compare_fresh"):
            if getattr(self, key) and self.warm_start != LATEST:
                yield reject_at(
                    (key,),
                    f"has no effect without `warm_start: {LATEST}`",
                    remedy=f"Set `warm_start: {LATEST}`, or remove `{key}`.",
                )
        if self.fresh_every and self.compare_fresh:
            yield reject_at(
                ("fresh_every",),
                "has no effect beside `compare_fresh`, which always trains one model "
                "from fresh weights",
                remedy="Remove one of the two settings.",
            )
        if self.phases:
            of_phases = [each.epochs for each in self.phases.values()]
            yield from _rejected("epochs", check_epochs, of_phases, self.epochs)
        if self.phases and self.evaluate_every:
            yield reject_at(
                ("evaluate_every",),
                "has no meaning beside `phases`, whose epochs are passes over the rows",
                remedy="Remove one of the two settings.",
            )
        if self.distribution.strategy == "parameter_server":
            for key, (why, instead) in NOT_ON_SERVERS.items():
                if getattr(self, key):
                    remedy = f"Remove it, or use `{instead}`."
                    yield reject_at((key,), why, remedy=remedy)

    def _undivided(self) -> Iterator[InitErrorDetails]:
        """A batch with too few rows for its parts, or that a size of the gang must, and
        cannot, divide."""
        size, most = self.batch_size, self.distribution.known_replicas
        if parts := self.accumulate_steps:
            yield from _rejected("accumulate_steps", check_parts, size, most, parts)
        least, each = self.distribution.min_workers, self.distribution.devices or 1
        if least and (self.steps_per_execution or 1) > 1:
            sizes = [each * n for n in range(least, most // each + 1)] or [most]
            check = check_even_for_each
            yield from _rejected("batch_size", check, size, sizes, SEVERAL_STEPS)

    @property
    def named_weights(self) -> str | None:
        """The folder of weights of the model that `warm_start` names.

        None where `warm_start` is not set or is `latest`.
        """
        folder = self.warm_start
        if folder in (None, LATEST) or folder.endswith(f"/{WEIGHTS_DIR}"):
            return None if folder == LATEST else folder
        return f"{folder}/{WEIGHTS_DIR}"

    def settings(self) -> Settings:
        """The settings that change results, besides data, model and strategy."""
        names = {field.name for field in dataclasses.fields(Settings)}
        plain = self.model_dump(mode="json", include=names)
        if self.evaluate_every:
            plain["evaluate_every"] = int(self.evaluate_every.split()[0])
        plain["optimizer"] = self.optimizer.model_dump(exclude_none=True)
        phases = [{"name": name, **each} for name, each in plain["phases"].items()]
        plain["phases"] = tuple(phases)
        logs = self.callbacks.tensorboard
        if logs and logs.profile:
            first, last = logs.profile.split("..")
            plain["callbacks"]["tensorboard"]["profile"] = [int(first), int(last)]
        return Settings(**plain | {"cache_limit": size(self.cache_limit)})

    def operation(
        self, kubeflow: Kubeflow | None = None, vertex: Vertex | None = None
    ) -> Operation:
        """The settings for how training is run; caching never compares them.

        Args:
          kubeflow: The section of this name, if there is one.
          vertex: The section of this name; required for `launcher: vertex`.
        """
        distribution = self.distribution
        return Operation(
            launcher=distribution.launcher,
            start_timeout=float(seconds(distribution.start_timeout)),
            stall_timeout=float(seconds(distribution.stall_timeout)),
            max_restarts=distribution.max_restarts,
            min_workers=distribution.min_workers,
            checkpoint_every=interval(self.checkpoint.every),
            checkpoint_keep=self.checkpoint.keep,
            check_numerics=self.debug.check_numerics,
            dump=self.debug.dump or "",
            job=distribution.job(kubeflow, vertex),
        )


def _rejected(
    key: str, check: Callable[..., object], *values: Any
) -> list[InitErrorDetails]:
    """The error of a key that a check of the Trainer rejects; else none."""
    try:
        check(*values)
    except UserError as error:
        fields = {"received": error.received, "remedy": error.remedy}
        return [reject_at((key,), error.message, **fields)]
    return []

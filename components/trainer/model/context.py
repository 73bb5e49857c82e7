"""The argument of the user's `build_model(context)` and `callbacks(context)`.

docs/custom_training.md has a table of its members; a test compares both.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.model import dropout
from strategos.components.trainer.model.dropout import TrainingStep, place
from strategos.components.trainer.model.tables import embedding
from strategos.components.transformed import graph
from strategos.components.transformed.feature_ids import FeatureIds
from strategos.components.wording import choices

if TYPE_CHECKING:
    import tensorflow_transform as tft
    from tensorflow_metadata.proto.v0 import schema_pb2

FeatureSpec = Mapping[str, Any]


class HyperparameterError(KeyError):
    """A hyperparameter that the YAML does not set."""

    def __str__(self) -> str:
        """The message, without the quotes that KeyError adds."""
        return str(self.args[0])


class Hyperparameters(dict[str, Any]):
    """Dict of `trainer.hyperparameters`; a missing key is an error with a remedy."""

    def __missing__(self, name: str) -> NoReturn:
        """Raises HyperparameterError."""
        known = ", ".join(self) or "empty"
        raise HyperparameterError(
            f"`{name}` is not in trainer.hyperparameters: {known}. "
            f'Add it there, or write `.get("{name}", DEFAULT)`'
        )


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """The facts of a training run that a model may depend on.

    A model gets its features as a dict of name to tensor: `[batch, 1]` for a scalar
    feature, `[batch, *shape]` for others, a `tf.SparseTensor` for a feature of varying
    length, a `tf.RaggedTensor` for a feature that `preprocessing_fn` returns ragged.
    The label is `[batch, 1]`, or `[batch, classes]` if it is one-hot or of several
    columns; of several heads, a dict of output to such a label; of features to
    reconstruct float32 `[batch, values]`.

    Example:
      ```python
      def build_model(context):
          inputs = context.inputs()
          carriers = context.vocabulary_size("carrier") + 1
          ...
          model = tf.keras.Model(inputs, outputs)
          model.compile("adam", tf.keras.losses.BinaryCrossentropy())
          return model
      ```

    Attributes:
      hyperparameters: `trainer.hyperparameters` of the pipeline's YAML.
      label: Name of the label; of several columns a JSON list of their names, of
        several heads a JSON object of output to name, and of features to reconstruct
        one with their names.
      feature_spec: `tf.io` spec of each transformed feature, without label and weight;
        features to reconstruct are among them.
      label_spec: `tf.io` spec of the label; of several heads by output.
      schema: The schema of the raw data.
      transform_output: TFT's `TFTransformOutput` of the transform graph.
      rows: Number of training examples.
      epochs: Passes over the examples, unless a callback stops training earlier; with
        `trainer.phases`, those of this phase.
      replicas: Copies of the model that train together.
      global_batch_size: Rows of a step, over all replicas.
      seed: The seed; already set in TensorFlow, NumPy and Python.
      drops_last_batch: Whether a smaller batch at the end of a pass is left out.
      is_chief: Whether this process's model is published.
      phase: Name of the phase that the model is built for; "" without
        `trainer.phases`.
      training_step: The step counter, from which `dropout` draws its masks.
      weight: Name of the feature that weights the rows; "" for none.
    """

    hyperparameters: Mapping[str, Any]
    label: str
    feature_spec: FeatureSpec
    label_spec: Any
    schema: schema_pb2.Schema
    transform_output: tft.TFTransformOutput
    rows: int
    epochs: int
    replicas: int
    global_batch_size: int
    seed: int
    drops_last_batch: bool = False
    is_chief: bool = True
    phase: str = ""
    training_step: TrainingStep = dataclasses.field(
        default_factory=TrainingStep, repr=False, compare=False
    )
    weight: str = ""

    @property
    def target(self) -> Label:
        """The label: `columns` has its names."""
        return Label.of(self.label)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of one pass, the last one perhaps smaller."""
        if self.drops_last_batch:
            return self.rows // self.global_batch_size
        return -(-self.rows // self.global_batch_size)

    @property
    def rows_per_epoch(self) -> int:
        """Rows that one pass trains on."""
        if self.drops_last_batch:
            return self.steps_per_epoch * self.global_batch_size
        return self.rows

    def rows_of_step(self, step: tf.Tensor) -> tf.Tensor:
        """Rows of the global batch of a step.

        Args:
          step: Step counted from 0, int64 scalar.

        Returns:
          Number of rows, int64 scalar.
        """
        rest = self.rows_per_epoch % self.global_batch_size or self.global_batch_size
        is_last = step % self.steps_per_epoch == self.steps_per_epoch - 1
        return tf.where(is_last, tf.cast(rest, tf.int64), self.global_batch_size)

    def dropout(
        self, rate: float, seed: int = 0, *, keras: Any = None
    ) -> tf.keras.layers.Layer:
        """A dropout layer with masks that survive a resume, see `dropout.layer`.

        Args:
          rate: Fraction of the values to drop, in [0, 1).
          seed: Seed of the layer; must differ between the dropout layers of a model.
          keras: The Keras package of the layer, as for `inputs`.
        """
        return dropout.layer(
            keras or tf.keras,
            rate,
            seed=self.seed * 1_000_003 + seed,
            step=self.training_step,
            rows_of=self.rows_of_step,
        )

    def row_seeds(self, inputs: tf.Tensor, seed: int = 0) -> tf.Tensor:
        """A seed for each row of a batch, for TensorFlow's stateless random operations.

        For augmentation in a layer of a model, in training: the seeds depend
        on `trainer.seed`, the step and the number of the row in the global batch, so
        that each picture is altered in the same way on any number of devices and after
        a resume.

        Example:
          ```python
          seeds = context.row_seeds(images)
          flip = tf.image.stateless_random_flip_left_right
          images = tf.map_fn(lambda x: flip(*x), (images, seeds), tf.float32)
          ```

        Args:
          inputs: The rows of this replica, `[rows, …]`, any dtype.
          seed: Another number gives other seeds, e.g. for a second layer.

        Returns:
          int64 `[rows, 2]`.
        """
        step = self.training_step()
        rows = tf.shape(inputs, tf.int64)[0]
        part = self.training_step.micro_batch
        first, _ = place(rows, lambda: self.rows_of_step(step), part)
        numbers = tf.range(first, first + rows) + step * self.global_batch_size
        key = tf.fill([rows], tf.constant(self.seed * 1_000_003 + seed, tf.int64))
        return tf.stack([key, numbers], axis=1)

    @property
    def per_replica_batch_size(self) -> int:
        """Rows of a step on one replica, rounded down."""
        return self.global_batch_size // self.replicas

    def inputs(self, keras: Any = None) -> dict[str, tf.keras.KerasTensor]:
        """One `Input` per feature, of the shape and dtype of the data.

        Args:
          keras: The Keras package of the inputs: `keras` for a Keras 3 model; by
            default `tf.keras`.
        """
        keras = keras or tf.keras
        spec = self.feature_spec
        return {name: _input(keras, name, kind) for name, kind in spec.items()}

    def embedding(
        self, feature: str, units: int, *, keras: Any = None, **arguments: Any
    ) -> tf.keras.layers.Layer:
        """An embedding of a feature with the ids of a vocabulary.

        The layer has one row for each entry, for each bucket of unknown keys, and for
        missing values if they have an id. Ids may start at any number, e.g. -1. The
        layer records the feature, so that a warm start moves rows with their entries.

        Example:
          ```python
          vectors = context.embedding("carrier", 8)(inputs["carrier"])
          ```

        Args:
          feature: Name of the feature: dense or ragged, int64.
          units: Size of a vector.
          keras: The Keras package of the layer, as for `inputs`.
          **arguments: Further arguments of Keras's `Embedding`, e.g. `name`.

        Returns:
          A layer from ids `[batch, n]` to float32 `[batch, n, units]`.

        Raises:
          UserError: The feature does not have the ids of one vocabulary.
        """
        keras = keras or tf.keras
        return embedding.layer(keras, feature, self.ids, units, **arguments)

    @functools.cached_property
    def ids(self) -> dict[str, FeatureIds]:
        """The meaning of the values of each transformed feature and of the label."""
        # In another thread, because this one may be in the scope of a strategy.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(graph.ids_of, self.transform_output).result()

    def vocabulary_size(self, name: str) -> int:
        """Number of entries of a vocabulary that Transform wrote.

        Args:
          name: The `vocab_filename` in `preprocessing_fn`.

        Raises:
          UserError: Transform wrote no such vocabulary.
        """
        try:
            return self.transform_output.vocabulary_size_by_name(name)
        except ValueError:
            raise UserError(_no_vocabulary(name, self.vocabularies())) from None

    def vocabulary(self, name: str) -> list[str]:
        """The entries of a vocabulary, in the order of their indices.

        Args:
          name: The `vocab_filename` in `preprocessing_fn`.

        Raises:
          UserError: Transform wrote no such vocabulary.
        """
        try:
            entries = self.transform_output.vocabulary_by_name(name)
        except ValueError:
            raise UserError(_no_vocabulary(name, self.vocabularies())) from None
        return [entry.decode() for entry in entries]

    def vocabularies(self) -> list[str]:
        """Names of all vocabularies that Transform wrote."""
        folder = f"{self.transform_output.transform_savedmodel_dir}/assets"
        return sorted(tf.io.gfile.listdir(folder)) if tf.io.gfile.exists(folder) else []


def feature_shape(spec: Any) -> tuple[int | None, ...]:
    """Shape of one row of a feature as the model gets it; None for a varying size.

    Args:
      spec: The feature's `tf.io` spec.
    """
    if isinstance(spec, tf.io.FixedLenFeature):
        return tuple(spec.shape) or (1,)
    if isinstance(spec, tf.io.SparseFeature):
        sizes = np.atleast_1d(spec.size).tolist()
        return tuple(None if size < 0 else size for size in sizes)
    # Partitions that name a feature have varying lengths; uniform ones a fixed length.
    partitions = getattr(spec, "partitions", ())
    return (None, *(getattr(each, "length", None) for each in partitions))


def _input(keras: Any, name: str, spec: Any) -> tf.keras.KerasTensor:
    return keras.Input(
        feature_shape(spec),
        name=name,
        dtype=spec.dtype.name,
        sparse=isinstance(spec, (tf.io.VarLenFeature, tf.io.SparseFeature)),
        ragged=isinstance(spec, tf.io.RaggedFeature),
    )


def _no_vocabulary(name: str, known: list[str]) -> str:
    return (
        f"There is no vocabulary `{name}`. Transform wrote: "
        f"{choices(known)}. Pass `vocab_filename` to `tft.vocabulary` or "
        "`tft.compute_and_apply_vocabulary` in `preprocessing_fn`."
    )

"""SavedModels that take serialized raw examples; TensorFlow and numpy only."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.exported import DESCRIPTION, ERROR, OUTPUT, SERVE, TRANSFORM
from strategos.components.files import exchange
from strategos.components.user_code.user_errors import operation_error


@dataclass(frozen=True)
class Location:
    """Folder of a model, and its name in messages.

    Attributes:
      name: Name of the model among the results.
      role: Name in messages: "candidate" or "model in production".
      path: Folder of the SavedModel.
      optional: Whether the others are scored without this model if it fails.
      sent: Where workers of an engine find the folder, if not at `path`; from
        `exchange.sent`.
    """

    name: str
    role: str
    path: str
    optional: bool = False
    sent: str = ""

    def error(self, text: str, key: str = "", remedy: str = "") -> UserError:
        """An error about this model.

        Args:
          text: The predicate of the message, such as "cannot be loaded".
          key: The setting that is at fault.
          remedy: The remedy, as a sentence.
        """
        message = f"{self.path}: the {self.role} {text}"
        return UserError(message, key=key, remedy=remedy)


class Model:
    """A loaded SavedModel, for any number of threads.

    Args:
      location: Folder of the SavedModel, and its name in messages.

    Attributes:
      from_logits: Whether the model predicts logits, as recorded by the Trainer; None
        if unknown.
      classes: Names of the classes, as recorded by the Trainer; [] if unknown.
      heads: The Trainer's record of each head, by output; {} for one head.
      reconstructs: Number of values of each feature that the model reconstructs, in
        the order of its output; {} for a model of a label.

    Raises:
      UserError: The SavedModel cannot be loaded.
    """

    def __init__(self, location: Location):
        self.error = location.error
        try:
            # Owns the variables of the signatures.
            folder = exchange.local(location.sent or location.path)
            self._loaded = tf.saved_model.load(folder)
        except (OSError, ValueError) as error:
            raise self.error(f"cannot be loaded: {error}") from error
        described = _description(folder)
        self.from_logits: bool | None = described.get("from_logits")
        self.classes: list[str] = described.get("classes") or []
        self.heads: dict[str, Any] = described.get("heads") or {}
        self.reconstructs: dict[str, int] = described.get("reconstructs") or {}

    def predict(self, examples: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Predicts on serialized examples.

        Args:
          examples: string [batch].

        Returns:
          Tensors `[batch, …]` by output.

        Raises:
          UserError: The model fails.
        """
        return self._call(SERVE, examples)

    def answer(self, outputs: Mapping[str, tf.Tensor], head: str = "") -> np.ndarray:
        """The output to compare with the label.

        Args:
          outputs: From `predict`.
          head: Name of the output; "" for a model with one head.

        Returns:
          float64 [batch, k].

        Raises:
          UserError: The model has no such output, or several and none is named.
        """
        if head and head not in outputs:
            raise self.error(
                f"answers with {', '.join(sorted(outputs))}; the evaluator needs the "
                f"output `{head}` that `label` names."
            )
        if head:
            values = np.asarray(outputs[head], np.float64)
            return values.reshape(len(values), -1)
        if self.reconstructs:
            outputs = {name: x for name, x in outputs.items() if name != ERROR}
        if OUTPUT not in outputs and len(outputs) > 1:
            raise self.error(
                f"answers with {', '.join(sorted(outputs))}; the evaluator needs one "
                f"output, or one called `{OUTPUT}`."
            )
        answer = outputs.get(OUTPUT, next(iter(outputs.values())))
        values = np.asarray(answer, np.float64)
        return values.reshape(len(values), -1)

    def takes_logits(self, head: str = "") -> bool | None:
        """`from_logits` of a head.

        Args:
          head: Name of the output; "" for a model with one head.
        """
        if not head:
            return self.from_logits
        recorded: bool | None = self.heads.get(head, {}).get("from_logits")
        return recorded

    def class_names(self, head: str = "") -> Sequence[str]:
        """`classes` of a head.

        Args:
          head: Name of the output; "" for a model with one head.
        """
        return (self.heads.get(head, {}).get("classes") or []) if head else self.classes

    def transformed(
        self, examples: tf.Tensor, feature: str, key: str = "label"
    ) -> np.ndarray:
        """A feature after the model's own preprocessing.

        Args:
          examples: string [batch], serialized.
          feature: Name of the feature.
          key: The setting that names the feature, for messages.

        Returns:
          float64 [batch]; of a one-hot feature the number of its class.

        Raises:
          UserError: The preprocessing does not return the feature, or returns several
            classes of a row.
        """
        value = self._made(examples, feature, key)
        if isinstance(value, tf.SparseTensor):
            value = value.values if value.shape[-1] == 1 else tf.sparse.to_dense(value)
        array = np.asarray(value, np.float64)
        if array.ndim > 1 and array.shape[-1] > 1:  # one-hot
            _check_one_hot(array, feature)
            return array.argmax(-1).reshape(-1).astype(np.float64)
        return array.reshape(-1)

    def vectors(self, examples: tf.Tensor, feature: str) -> np.ndarray:
        """The classes of each row, after the model's own preprocessing.

        Args:
          examples: string [batch], serialized.
          feature: Name of the label.

        Returns:
          float64 [batch, classes].

        Raises:
          UserError: The preprocessing does not return the feature, or not as one vector
            of equal length for each row.
        """
        value = self._made(examples, feature, "label")
        if not isinstance(value, tf.Tensor) or value.shape.rank != 2:
            raise UserError(
                f"`{feature}` is no vector of equal length in each row after "
                "`preprocessing_fn`",
                key="label",
                expected="0 or 1 for each class of a row, for task multi_label",
                remedy="Return it as a dense tensor `[rows, classes]`.",
            )
        return np.asarray(value, np.float64)

    def reconstructed(self, examples: tf.Tensor) -> np.ndarray:
        """The target of the model: the features, after its own preprocessing.

        Args:
          examples: string [batch], serialized.

        Returns:
          float64 [batch, values], in the order of `reconstructs`.

        Raises:
          UserError: The model has learned a label instead, or its preprocessing fails.
        """
        if not self.reconstructs:
            raise self.error("reconstructs no features: it was trained on a label.")
        made = self._call(TRANSFORM, examples)
        rows = len(examples)
        parts = [np.asarray(made[name], np.float64) for name in self.reconstructs]
        return np.concatenate([each.reshape(rows, -1) for each in parts], axis=1)

    def _made(self, examples: tf.Tensor, feature: str, key: str) -> Any:
        if TRANSFORM not in self._loaded.signatures:
            raise self.error(
                f"has no signature `{TRANSFORM}`, which makes `{feature}`",
                key,
                "Name the raw column if `preprocessing_fn` passes it through as it is, "
                "or let `run_fn` export this signature.",
            )
        outputs = self._call(TRANSFORM, examples)
        if feature not in outputs:
            raise UserError(
                f"`{feature}` is no number in the data, and `preprocessing_fn` does "
                f"not return it (it returns {', '.join(sorted(outputs))})",
                key=key,
                remedy="Return it as a number, for example by "
                "tft.compute_and_apply_vocabulary.",
            )
        return outputs[feature]

    def learned(self, examples: tf.Tensor, feature: str) -> np.ndarray | None:
        """The label that the model was trained on, if its preprocessing returns it.

        Args:
          examples: string [batch], serialized.
          feature: Name of the label.

        Returns:
          float64 [batch], or None.
        """
        if TRANSFORM not in self._loaded.signatures:
            return None
        value = self._call(TRANSFORM, examples).get(feature)
        if not isinstance(value, tf.Tensor) or value.dtype == tf.string:
            return None
        flat = np.asarray(value, np.float64).reshape(-1)
        return flat if len(flat) == len(examples) else None

    def numbers(
        self, examples: tf.Tensor, feature: str, several: bool
    ) -> np.ndarray | None:
        """The classes of rows by the model's own preprocessing, if it returns them.

        Args:
          examples: string [batch], serialized.
          feature: Name of the label.
          several: Whether a row may have several classes.

        Returns:
          float64 [batch], of a one-hot feature the number of its class; with `several`
          [batch, classes]; or None.
        """
        if TRANSFORM not in self._loaded.signatures:
            return None
        value: Any = self._call(TRANSFORM, examples).get(feature)
        is_plain = isinstance(value, tf.Tensor | tf.SparseTensor)
        if not is_plain or value.dtype == tf.string:
            return None
        make = self.vectors if several else self.transformed
        try:
            made = make(examples, feature)
        except UserError:  # of rows that have no class, or several
            return None
        return made if len(made) == len(examples) else None

    def _call(self, name: str, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        signature = self._loaded.signatures.get(name)
        if signature is None:
            there = ", ".join(sorted(self._loaded.signatures)) or "none"
            raise self.error(f"has no signature `{name}`; it has {there}.")
        (argument,) = signature.structured_input_signature[1]
        try:
            return signature(**{argument: examples})
        except tf.errors.OpError as error:
            reason = operation_error(error.message)
            raise self.error(f"fails on the eval examples: {reason}") from error


def _check_one_hot(labels: np.ndarray, feature: str) -> None:
    """Rejects rows of a vector of classes that are in several classes, or in none."""
    wrong = (labels.sum(-1) != 1) | ((labels != 0) & (labels != 1)).any(-1)
    if wrong.any():
        raise UserError(
            f"`{feature}` is a vector after `preprocessing_fn`, and in "
            f"{wrong.sum():,} of {len(wrong):,} rows it has not exactly one class",
            key="label",
            remedy="If a row may have several classes, set `evaluator.task: "
            "multi_label`; for a class that only new data have, add "
            "`num_oov_buckets=1`.",
        )


def _description(path: str) -> dict[str, Any]:
    """The Trainer's record of the model; {} without one."""
    try:
        with tf.io.gfile.GFile(f"{path}/{DESCRIPTION}") as file:
            return dict(json.loads(file.read()))
    except tf.errors.NotFoundError:
        return {}


class Unusable(Model):
    """Stands for an optional model that cannot be loaded.

    Args:
      error: Why not.
    """

    def __init__(self, error: UserError):
        self._error = error
        self.classes, self.heads, self.reconstructs = [], {}, {}

    def predict(self, examples: tf.Tensor) -> NoReturn:
        """Raises the error."""
        raise self._error


def _model(location: Location) -> Model | Unusable:
    try:
        return Model(location)
    except UserError as error:
        if not location.optional:
            raise
        return Unusable(error)


class LoadedModels:
    """The models of one evaluation, which a process loads once for all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[Location, Model | Unusable] = {}

    def get(self, locations: Sequence[Location]) -> list[Model | Unusable]:
        """The models, in order; forgets the models of other evaluations.

        Args:
          locations: All models of the evaluation.

        Raises:
          UserError: A SavedModel that is not optional cannot be loaded.
        """
        with self._lock:
            if self._models.keys() != set(locations):
                self._models = {location: _model(location) for location in locations}
            return [self._models[location] for location in locations]

    def forget(self) -> None:
        """Frees the models; `get` loads them again."""
        with self._lock:
            self._models = {}


loaded = LoadedModels()

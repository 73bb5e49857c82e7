"""Checks that the labels fit the model's loss, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.model.known_losses import Loss

_NEARLY = 1e-3  # of rounded shares
_WANTS_VARIETY = ("binary_crossentropy", "sparse_categorical_crossentropy")


class LabelChecker:
    """Checks labels; each error names the label and the remedies.

    Args:
      where: Name of the function in errors: `FILE: build_model`.
      label: The label.
      unseen: Returns a label of the evaluation split that training lacks, with its
        place; "" if none is known.
      subject: Beginning of sentences about the output, with a space; "" for one head.
    """

    def __init__(
        self, where: str, label: Label, unseen: Callable[[], str], subject: str = ""
    ):
        self._where = f"{where}: {subject}"
        self._columns, self._label = label.columns, label.name
        self._kind = "feature" if label.reconstructs else "label"
        self._unseen = unseen

    def check_kind(self, labels: tf.Tensor) -> None:
        """Rejects labels that are strings.

        Args:
          labels: `[rows, k]`.

        Raises:
          UserError: The labels are strings.
        """
        if labels.dtype == tf.string:
            raise UserError(
                f"`{self._label}` is a string after Transform",
                key="label",
                remedy="Make a number of it in `preprocessing_fn`: "
                f'`tf.cast(inputs["{self._label}"] == "VALUE", tf.int64)` for two '
                "classes, where VALUE is the one to predict; for more, "
                f'`tft.compute_and_apply_vocabulary(inputs["{self._label}"], '
                f'vocab_filename="{self._label}")`.',
            )

    def check(self, loss: Loss, units: int, labels: tf.Tensor, split: str) -> None:
        """Rejects labels that the loss cannot take.

        Args:
          loss: The model's loss.
          units: Number of the model's output units.
          labels: `[rows, k]`.
          split: "training" or "evaluation".

        Raises:
          UserError: A label is out of range, e.g. class 3 for a model of 3 units.
        """
        low, high = _range(labels)
        if loss.name == "sparse_categorical_crossentropy" and low < 0:
            count = f"{np.sum(labels < 0):,} of {len(labels):,}"
            raise UserError(
                f"`{self._label}` is {low:g} in {count} rows of the {split} split: a "
                "class that its vocabulary lacks, such as one that only new data have"
                + self._first(split),
                key="label",
                remedy="Leave such rows out when the data are prepared, split so that "
                "the training split has the class (`by: hash`), or give "
                "`compute_and_apply_vocabulary` `num_oov_buckets=1` and the model one "
                "unit more.",
            )
        if loss.name == "sparse_categorical_crossentropy" and high >= units:
            raise self._misfit(
                f"{units} output unit(s)",
                labels,
                split,
                f"it needs at least {int(high) + 1} units, one per class counted from "
                "0",
            )
        if loss.name == "binary_crossentropy" and not 0 <= low <= high <= 1:
            raise self._misfit(
                "a binary_crossentropy",
                labels,
                split,
                "expected 0 to 1. For several classes use "
                "SparseCategoricalCrossentropy",
            )

        if loss.name == "categorical_crossentropy" and labels.shape[-1] > 1:
            self._check_one_class(labels, split)

    def _check_one_class(self, labels: tf.Tensor, split: str) -> None:
        """Rejects rows of several classes, or of none; the loss compares shares."""
        total = np.asarray(labels, np.float64).sum(-1)
        wrong = np.flatnonzero(np.abs(total - 1) > _NEARLY)
        if len(wrong):
            raise UserError(
                f"{self._where}has a categorical_crossentropy, but in "
                f"{len(wrong):,} of {len(total):,} rows of the {split} split the "
                f"values of the {self._kind} `{self._label}` do not add up to 1; the "
                f"first such row has {total[wrong[0]]:g}",
                remedy="For several classes a row, end the model with a sigmoid and "
                "use BinaryCrossentropy; for one, give each row a single 1, or shares.",
            )

    def check_varies(self, loss: Loss, labels: tf.Tensor) -> None:
        """Rejects labels that all have the same class.

        Args:
          loss: The model's loss; others than binary and sparse categorical crossentropy
            are not checked.
          labels: The labels of all training examples, `[rows, k]`.

        Raises:
          UserError: All labels are equal.
        """
        low, high = _range(labels)
        if low == high and loss.name in _WANTS_VARIETY:
            raise UserError(
                f"`{self._label}` is {low:g} in every training example: there is "
                "nothing to learn",
                key="label",
                remedy="Check how the data or `preprocessing_fn` makes it.",
            )

    def _misfit(
        self, what: str, labels: tf.Tensor, split: str, wanted: str
    ) -> UserError:
        name = self._label
        if len(self._columns) == labels.shape[-1] > 1:
            outside = tf.reduce_any((labels < 0) | (labels > 1), 0)
            place = int(tf.argmax(tf.cast(outside, tf.int64)))
            name, labels = self._columns[place], labels[:, place]
        low, high = _range(labels)
        return UserError(
            f"{self._where}has {what}, but the {self._kind} `{name}` has values from "
            f"{low:g} to {high:g} in the {split} split{self._first(split)}: {wanted}."
        )

    def _first(self, split: str) -> str:
        """Names the first label that only this split has; "" if unknown."""
        unseen = self._unseen() if split == "evaluation" else ""
        return f". Training has no {unseen}" if unseen else ""


def _range(labels: tf.Tensor) -> tuple[float, float]:
    return float(tf.reduce_min(labels)), float(tf.reduce_max(labels))

"""Checks that an output of a model fits its loss and its label; errors have a remedy.

TensorFlow trains many wrong combinations without an error: logits under a loss that
expects probabilities, one output unit broadcast over a one-hot label.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.model.known_losses import Loss, known_loss
from strategos.components.trainer.model.labels.label_checks import LabelChecker

_PROBABILITY_ACTIVATIONS = ("sigmoid", "softmax", "hard_sigmoid")


class HeadChecker:
    """Checks the output that learns a label.

    Args:
      where: Name of the function in errors: `FILE: build_model`.
      label: The label.
      unseen: Returns a label of the evaluation split that training lacks, with its
        place; "" if none is known.
      output: Name of the output of a model with several heads; "" for one head.
    """

    def __init__(
        self, where: str, label: Label, unseen: Callable[[], str], output: str = ""
    ):
        subject = f"the output `{output}` " if output else ""
        self._labels = LabelChecker(where, label, unseen, subject)
        self._subject = f"{where}: {subject}"
        self._label = label.name
        self._learned = f"the label `{self._label}` has"
        if label.reconstructs:
            self._learned = f"the features to reconstruct (`{self._label}`) have"

    def check_kind(self, labels: tf.Tensor) -> None:
        """Rejects labels that are strings; see `LabelChecker.check_kind`."""
        self._labels.check_kind(labels)

    def check(
        self,
        loss: object,
        activation: str | None,
        output: tf.Tensor,
        labels: tf.Tensor,
        *,
        complete: bool,
        evaluated: tf.Tensor | None = None,
    ) -> None:
        """Rejects an output that its loss cannot take, and labels that it cannot learn.

        Args:
          loss: As `compile` got it; a loss that is not of Keras is not checked.
          activation: Name of the activation that computes the output, if known.
          output: `[rows, …]` of a few rows.
          labels: All available labels, `[rows, k]`.
          complete: Whether `labels` are the labels of all training examples.
          evaluated: The labels of the evaluation split; None if unknown.

        Raises:
          UserError: They do not fit.
        """
        known = known_loss(loss)
        if not (known and isinstance(output, tf.Tensor)):
            return
        units = output.shape[-1]
        if output.shape.rank == 1:  # Keras treats this as one unit
            output = output[:, tf.newaxis]
        self._check_shapes(known, output.shape, labels)
        self._labels.check(known, output.shape[-1], labels, "training")
        self._check_probabilities(known, activation, output.numpy())
        if evaluated is not None:
            self._labels.check(known, units, evaluated, "evaluation")
        if complete:
            self._labels.check_varies(known, labels)

    def _check_shapes(
        self, loss: Loss, output: tf.TensorShape, labels: tf.Tensor
    ) -> None:
        units, width = output[-1], labels.shape[-1]
        if loss.name == "sparse_categorical_crossentropy":
            if width != 1:
                raise self._refusal(
                    "has a SparseCategoricalCrossentropy, but the label "
                    f"`{self._label}` has {width} values per row (one-hot). "
                    "Use CategoricalCrossentropy."
                )
        elif units != width:
            raise self._refusal(
                f"has {units} output unit(s), but {self._learned} "
                f"{width} value(s) per row; {loss.name} compares them one by one. "
                + _shape_remedy(loss, units, width)
            )
        elif loss.name == "categorical_crossentropy" and units == 1:
            raise self._refusal(
                "has one output unit under categorical_crossentropy: its loss is "
                "always 0. Use BinaryCrossentropy with a sigmoid, or a unit per class."
            )

    def _check_probabilities(
        self, loss: Loss, activation: str | None, output: np.ndarray
    ) -> None:
        if not loss.name.endswith("crossentropy"):
            return
        sums_to_one = output.shape[-1] > 1 and np.allclose(output.sum(-1), 1, atol=1e-4)
        outside = bool(np.any((output < 0) | (output > 1)))
        if loss.from_logits and (activation in _PROBABILITY_ACTIVATIONS or sums_to_one):
            raise self._refusal(
                f"gives probabilities ({activation or 'each row sums to 1'}), but its "
                f"loss {loss.name} has from_logits=True. Leave out one of the two."
            )
        if not loss.from_logits and (activation == "linear" or outside):
            raise self._refusal(
                f"gives logits (last activation: {activation or 'unknown'}; values on "
                f"the first rows from {output.min():.3g} to {output.max():.3g}), "
                f"but its loss {loss.name} takes probabilities. "
                "Pass from_logits=True to the loss, or end the model with "
                f"{_probability_remedy(loss)}."
            )

    def _refusal(self, what: str) -> UserError:
        return UserError(f"{self._subject}{what}")


def _shape_remedy(loss: Loss, units: int, width: int) -> str:
    if loss.name == "categorical_crossentropy" and width == 1:
        return "Use SparseCategoricalCrossentropy for labels that are class numbers."
    if loss.name == "binary_crossentropy" and width == 1:
        return "End the model with one unit, or use SparseCategoricalCrossentropy."
    return f"End the model with {width} unit(s)."


def _probability_remedy(loss: Loss) -> str:
    return "a sigmoid" if loss.name == "binary_crossentropy" else "a softmax"

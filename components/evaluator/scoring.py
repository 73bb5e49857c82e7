"""Runs models over examples in large batches; TensorFlow and numpy only.

Keeps of each row its label, one or two numbers per model, and a number for each value
of a sliced feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError, first_line
from strategos.components.evaluator.columnar import EPSILON, Columns, Membership, Scored
from strategos.components.exported import SERVE, TRANSFORM
from strategos.components.records import read

BATCH = 10_000
OUTPUT = "predictions"


@dataclass(frozen=True)
class Question:
    """What to read from the examples, and how to interpret the models' predictions.

    Attributes:
      task: One of `metrics.TASKS`.
      label: The label's feature. A string label is read after the candidate's own
        preprocessing (signature `transform_features`), which turns it into a number.
      slices: Features to slice by.
      types: Dtype by feature, of the label and of `slices`.
    """

    task: str
    label: str
    slices: Sequence[str]
    types: Mapping[str, tf.DType]


class Model:
    """A SavedModel that takes serialized raw examples.

    Args:
      role: Name in messages: "candidate" or "model in production".
      path: Folder of the SavedModel.
      advice: Remedy at the end of errors about this model.

    Raises:
      UserError: The SavedModel cannot be loaded.
    """

    def __init__(self, role: str, path: str, advice: str = ""):
        self.role = role
        self.path = path
        self._advice = advice
        try:
            self._loaded = tf.saved_model.load(path)  # owns the signatures' variables
        except (OSError, ValueError) as error:
            raise self.error(f"cannot be loaded: {error}") from error

    def error(self, text: str) -> UserError:
        """An error about this model, with the advice for its role.

        Args:
          text: The predicate of the message, such as "cannot be loaded".
        """
        return UserError(f"{self.path}: the {self.role} {text} {self._advice}".rstrip())

    def predict(self, examples: tf.Tensor) -> np.ndarray:
        """Predicts on serialized examples.

        Args:
          examples: string [batch].

        Returns:
          float64 [batch, k].

        Raises:
          UserError: The model fails, or has several outputs.
        """
        outputs = self._call(SERVE, examples)
        if OUTPUT not in outputs and len(outputs) > 1:
            raise self.error(
                f"answers with {', '.join(sorted(outputs))}; the evaluator needs one "
                f"output, or one called `{OUTPUT}`."
            )
        answer = outputs.get(OUTPUT, next(iter(outputs.values())))
        values = np.asarray(answer, np.float64)
        return values.reshape(len(values), -1)

    def transformed(self, examples: tf.Tensor, feature: str) -> np.ndarray:
        """A feature after the model's own preprocessing.

        Args:
          examples: string [batch], serialized.
          feature: Name of the feature.

        Returns:
          float64 [batch].

        Raises:
          UserError: The preprocessing does not return the feature.
        """
        outputs = self._call(TRANSFORM, examples)
        if feature not in outputs:
            raise UserError(
                f"`{feature}` is a string, and `preprocessing_fn` does not return it "
                f"(it returns {', '.join(sorted(outputs))})",
                key="label",
                remedy="Return it as a number, for example by "
                "tft.compute_and_apply_vocabulary.",
            )
        value = outputs[feature]
        if isinstance(value, tf.SparseTensor):
            value = tf.sparse.to_dense(value)
        return np.asarray(value, np.float64).reshape(-1)

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

    def _call(self, name: str, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        signature = self._loaded.signatures.get(name)
        if signature is None:
            there = ", ".join(sorted(self._loaded.signatures)) or "none"
            raise self.error(f"has no signature `{name}`; it has {there}.")
        (argument,) = signature.structured_input_signature[1]
        try:
            return signature(**{argument: examples})
        except tf.errors.OpError as error:
            reason = first_line(error.message)
            raise self.error(f"fails on the eval examples: {reason}") from error


class _Slices:
    """The rows that have each value of a feature, collected batch by batch."""

    def __init__(self) -> None:
        self._codes: dict[str | int | float, int] = {}
        self._row: list[np.ndarray] = []
        self._code: list[np.ndarray] = []

    def add(self, row: np.ndarray, value: np.ndarray) -> None:
        """Adds the entries of a batch.

        Args:
          row: int64 [entries], ascending: the row of each entry.
          value: bytes, int64 or float32 [entries]: the feature's values.
        """
        distinct, inverse = np.unique(value, return_inverse=True)
        codes = [
            self._codes.setdefault(_slice_value(v), len(self._codes)) for v in distinct
        ]
        code = np.array(codes, np.int64)[inverse.reshape(-1)]
        # A value that a row repeats counts once.
        keys = np.unique(row * len(self._codes) + code)
        self._row.append(keys // max(len(self._codes), 1))
        self._code.append(keys % max(len(self._codes), 1))

    def membership(self) -> Membership:
        """Everything added so far, by distinct value; NaN comes last."""
        values = sorted(self._codes, key=lambda value: (value != value, value))
        place = np.empty(len(values), np.int64)
        place[[self._codes[value] for value in values]] = np.arange(len(values))
        code = place[np.concatenate(self._code)]
        return Membership(values, np.concatenate(self._row), code)


def score(
    files: Sequence[str],
    question: Question,
    models: Mapping[str, Model],
    candidate: str,
    progress: Callable[[int], None] = lambda rows: None,
) -> Scored:
    """Reads the examples once and runs every model on them.

    Args:
      files: TFRecord files of tf.Example; names that end with `.gz` mean GZIP.
      question: What to read, and which task the models solve.
      models: Models by name.
      candidate: Name of the model whose preprocessing reads a string label.
      progress: Called with the number of rows so far.

    Raises:
      UserError: There are no examples, labels are missing or do not fit the task, or
        predictions do not.
    """
    labels: list[np.ndarray] = []
    scores: dict[str, list[Columns]] = {name: [] for name in models}
    slices = {feature: _Slices() for feature in question.slices}
    rows = 0
    for batch in read.records(sorted(files)).batch(BATCH).prefetch(1):
        label, members = _parse(batch, question, models[candidate], rows)
        labels.append(label)
        for feature, (row, value) in members.items():
            slices[feature].add(row + rows, value)
        for name, model in models.items():
            answer = _checked(model.predict(batch), label, question, model)
            scores[name].append(_columns(answer, label, question.task))
        rows += len(label)
        progress(rows)
    label = np.concatenate(labels or [np.empty(0)])
    _check_classes(label, question)
    return Scored(
        label,
        {name: _concatenated(parts) for name, parts in scores.items()},
        {feature: found.membership() for feature, found in slices.items()},
    )


def _parse(
    batch: tf.Tensor, question: Question, candidate: Model, offset: int
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    spec = {name: tf.io.VarLenFeature(dtype) for name, dtype in question.types.items()}
    parsed = tf.io.parse_example(batch, spec)
    present = parsed[question.label]
    _check_one_label(present, len(batch), question.label, offset)
    if present.dtype == tf.string:
        label = candidate.transformed(batch, question.label)
    else:
        label = present.values.numpy().astype(np.float64)
        if not offset:
            _check_learned(batch, label, question, candidate)
    _check_label(label, question)
    members = {
        name: (parsed[name].indices[:, 0].numpy(), parsed[name].values.numpy())
        for name in question.slices
    }
    return label, members


def _check_one_label(label: tf.SparseTensor, rows: int, name: str, offset: int) -> None:
    count = np.bincount(label.indices[:, 0].numpy(), minlength=rows)
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        first = wrong[0]
        raise UserError(
            key="label",
            received=f"{count[first]} values of `{name}` in example "
            f"{offset + first:,} of the eval split",
            expected="exactly one in each example",
            remedy="Drop the rows without a label when the data are prepared.",
        )


def _check_learned(
    batch: tf.Tensor, label: np.ndarray, question: Question, candidate: Model
) -> None:
    """Rejects a label that preprocessing changes: the raw one judges predictions."""
    learned = candidate.learned(batch, question.label)
    if learned is None:
        return
    wrong = np.flatnonzero(~np.isclose(learned, label, rtol=1e-4, equal_nan=True))
    if not len(wrong):
        return
    first = wrong[0]
    message = (
        f"`preprocessing_fn` changes `{question.label}` in {len(wrong):,} of "
        f"{len(label):,} examples, the first time from {label[first]:g} to "
        f"{learned[first]:g}: the model predicts changed values, but is judged by the "
        "raw column"
    )
    if question.task == "regression":  # perhaps clipped for training: still comparable
        events.emit("warning", message=f"label: {message}.")
        return
    raise UserError(
        message,
        key="label",
        remedy="Make the column that the model learns before the data are read, for "
        "example by `data.prepare`, and return it unchanged.",
    )


def _check_label(label: np.ndarray, question: Question) -> None:
    if question.task == "binary":
        wrong = label[(label != 0) & (label != 1)]
        allowed = "0 or 1 for task binary"
    elif question.task == "multi_class":
        wrong = label[(label < 0) | (label != np.floor(label))]
        allowed = "class numbers 0, 1, 2, … for task multi_class"
    else:
        wrong = label[~np.isfinite(label)]
        allowed = "finite numbers for task regression"
    if len(wrong):
        raise UserError(
            key="label",
            received=f"{wrong[0]:g} as `{question.label}` in the eval split",
            expected=allowed,
        )


def _check_classes(label: np.ndarray, question: Question) -> None:
    if not len(label):
        raise UserError(
            "the eval split has no examples",
            key="data.split",
            remedy="Use more data, or give eval a larger share.",
        )
    if question.task == "binary" and label.min() == label.max():
        word = "never" if label[0] == 0 else "always"
        raise UserError(
            f"`{question.label}` is {word} 1 in the {len(label):,} examples of the "
            "eval split, so a model cannot be judged on it",
            key="label",
            remedy="Check how the label is made, or use more data.",
        )


def _checked(
    answer: np.ndarray, label: np.ndarray, question: Question, model: Model
) -> np.ndarray:
    task, single = question.task, question.task != "multi_class"
    if len(answer) != len(label):
        raise model.error(f"gives {len(answer)} answers to {len(label)} examples.")
    if single != (answer.shape[1] == 1):
        needed = "one number" if single else "one probability per class"
        raise model.error(
            f"gives {answer.shape[1]} numbers per example; task {task} needs {needed}."
        )
    if not single and label.max() >= answer.shape[1]:
        raise model.error(
            f"knows {answer.shape[1]} classes, but label `{question.label}` is "
            f"{label.max():g} in the eval split (classes count from 0)."
        )
    if task != "regression":
        _check_probabilities(answer, task, model)
    return answer


def _check_probabilities(answer: np.ndarray, task: str, model: Model) -> None:
    known = answer[~np.isnan(answer)]
    if known.size and (known.min() < -EPSILON or known.max() > 1 + EPSILON):
        layer = "softmax" if task == "multi_class" else "sigmoid"
        raise model.error(
            f"predicts numbers from {known.min():.4g} to {known.max():.4g}; task "
            f"{task} needs probabilities. End the model, or its `{SERVE}`, with a "
            f"{layer}."
        )


def _columns(answer: np.ndarray, label: np.ndarray, task: str) -> Columns:
    if task != "multi_class":
        return {"prediction": answer[:, 0]}
    known = np.isfinite(answer).all(axis=1)
    chosen = answer[np.arange(len(label)), label.astype(np.int64)]
    share = chosen / np.maximum(answer.sum(axis=1), EPSILON)
    right = np.where(known, answer.argmax(axis=1) == label, np.nan)
    return {"right": right, "loss": -np.log(np.clip(share, EPSILON, 1.0))}


def _concatenated(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _slice_value(value: bytes | np.generic) -> str | int | float:
    """A value as it names its slice; equal for all that belong to one slice.

    A float32 becomes the shortest decimal that stands for it: 0.1, not 0.10000000149.
    """
    if isinstance(value, bytes):
        # What is not UTF-8 stays distinct: `\xff` and `\xfe` are two slices.
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.floating):
        # A dict treats each NaN as a new key, unless it is the same object.
        return math.nan if np.isnan(value) else float(str(value)) + 0.0  # no -0.0
    return int(value)

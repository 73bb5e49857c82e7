"""Scores a file of examples in large batches; TensorFlow and numpy only."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.evaluation.formulas import EPSILON
from strategos.components.evaluation.metrics import MOST_SLICES, Columns
from strategos.components.evaluation.models import Location, Model, loaded
from strategos.components.evaluation.scored import Learned, Scored
from strategos.components.evaluation.sums import SliceMembership, Sums
from strategos.components.exported import SERVE
from strategos.components.files import exchange, storage
from strategos.components.records import read
from strategos.components.shards import progress
from strategos.components.wording import counted

BATCH = 10_000
SHARD_BYTES = 1 << 17  # smaller files are scored together

_COMPARED = 1_000  # rows of a shard on which raw and transformed label are compared


@dataclass(frozen=True)
class Question:
    """Features to read from the examples, and metrics to compute.

    Attributes:
      task: One of `metrics.TASKS`.
      metrics: Names in `metrics.METRICS` that are defined for the task.
      label: The label's feature. A string label is read after the candidate's own
        preprocessing (signature `transform_features`), e.g. "yes" as 1.
      slices: Features to slice by.
      types: Dtype by feature, of the label and of `slices`.
      from_logits: Whether predictions are logits (`evaluator.from_logits`); None: as
        recorded in each model.
    """

    task: str
    metrics: Sequence[str]
    label: str
    slices: Sequence[str]
    types: Mapping[str, tf.DType]
    from_logits: bool | None = None


@dataclass(frozen=True)
class Scorer:
    """Runs models over files of examples, in any thread of any process.

    Attributes:
      question: Features to read and metrics to compute.
      models: The models, the candidate first; the candidate's preprocessing reads a
        string label.
    """

    question: Question
    models: tuple[Location, ...]

    @contextlib.contextmanager
    def sent(self, url: str | None) -> Iterator[Scorer]:
        """Copies the models to workers that do not see them, for the time of the block.

        Yields:
          The scorer for the workers.

        Args:
          url: The folder for copies; see `exchange`.

        Raises:
          OSError: A model cannot be copied.
        """
        with contextlib.ExitStack() as stack:
            models = [
                dataclasses.replace(
                    model, sent=stack.enter_context(exchange.sent(url, model.path))
                )
                for model in self.models
            ]
            yield Scorer(self.question, tuple(models))

    def __call__(self, files: Sequence[str]) -> Scored:
        """Scores the rows of some files; an optional model that fails is left out.

        Args:
          files: TFRecord files of tf.Examples; names that end with `.gz` mean GZIP.

        Raises:
          UserError: Labels are missing or do not fit the task, or predictions do not.
        """
        question, models = self.question, loaded.get(self.models)
        scored = Scored(Sums(question.metrics, question.task))
        for batch in read.batches(files, BATCH):
            first = scored.sums.examples
            parsed = _parsed(batch, question)
            _check_one_label(parsed[question.label], question.label, files, first)
            label = _label(batch, parsed[question.label], question, models[0])
            if not first and question.types[question.label] != tf.string:
                scored.learned = _learned(batch, label, question, models[0])
            scores = {}
            for location, model in zip(self.models, models, strict=True):
                if location.name in scored.unusable:
                    continue
                try:
                    answer = _checked(model, batch, label, question)
                except UserError as error:
                    if not location.optional:
                        raise
                    scored.unusable[location.name] = error.message
                    continue
                scores[location.name] = _columns(answer, label, question.task)
                scored.widen(location.name, answer)
            slices = {name: _membership(parsed[name]) for name in question.slices}
            scored.sums.add(label, scores, slices)
            progress.add(len(label))
        scored.sums.compact()  # here and not where all are merged, one after another
        return scored


def shards(files: Iterable[str]) -> list[tuple[str, ...]]:
    """Files that are scored together: several small files, or a large file.

    Args:
      files: TFRecord files.
    """
    members, size, groups = [], 0, []
    names = sorted(files)
    for file, status in zip(names, storage.statuses(names), strict=True):
        members.append(file)
        size += status.size
        if size >= SHARD_BYTES:
            groups.append(tuple(members))
            members, size = [], 0
    return [*groups, tuple(members)] if members else groups


def check(scored: Scored, question: Question) -> None:
    """Rejects rows on which no model can be judged.

    Args:
      scored: Results of all rows.
      question: The question that was answered.

    Raises:
      UserError: No rows exist, their labels are all the same, the candidate has learned
        other labels, or a sliced feature has too many values.
    """
    sums = scored.sums
    if not sums.examples:
        raise UserError(
            "the eval split has no examples",
            key="data.split",
            remedy="Use more data, or give eval a larger share.",
        )
    if question.task == "binary" and sums.labels in (0, sums.examples):
        word = "never" if sums.labels == 0 else "always"
        raise UserError(
            f"`{question.label}` is {word} 1 in the {sums.examples:,} examples of the "
            "eval split, so a model cannot be judged on it",
            key="label",
            remedy="Check how the label is made, or use more data.",
        )
    if scored.learned.nearly_all:
        raise scored.learned.error(question.label)
    for feature in question.slices:
        if feature in sums.too_many:
            raise UserError(
                "the feature has more distinct values in the eval split",
                key="evaluator.slices",
                received=f"`{feature}`",
                expected=f"features with at most {MOST_SLICES:,} values",
                remedy="Slice by a coarser feature: a group, a region, a range.",
            )


def _parsed(batch: tf.Tensor, question: Question) -> dict[str, tf.SparseTensor]:
    spec = {name: tf.io.VarLenFeature(dtype) for name, dtype in question.types.items()}
    return tf.io.parse_example(batch, spec)


def _label(
    batch: tf.Tensor, values: tf.SparseTensor, question: Question, candidate: Model
) -> np.ndarray:
    if values.dtype == tf.string:
        label = candidate.transformed(batch, question.label)
    else:
        label = values.values.numpy().astype(np.float64)
    _check_label(label, question)
    return label


def _membership(feature: tf.SparseTensor) -> SliceMembership:
    row = feature.indices[:, 0].numpy()
    if feature.dtype == tf.string:
        # Makes no Python object of each value.
        distinct, inverse = (part.numpy() for part in tf.unique(feature.values))
    else:  # unlike TensorFlow's, takes NaN for one value
        distinct, inverse = np.unique(feature.values.numpy(), return_inverse=True)
    names: dict[str | int | float, int] = {}
    codes = [names.setdefault(_slice_value(each), len(names)) for each in distinct]
    code = np.array(codes, np.int64)[inverse.reshape(-1)]
    if len(row) and (np.diff(row) == 0).any():
        # A value that a row repeats counts once.
        row, code = np.divmod(np.unique(row * len(names) + code), len(names))
    return SliceMembership(list(names), row, code)


def _check_one_label(
    label: tf.SparseTensor, name: str, files: Sequence[str], first: int
) -> None:
    rows = int(label.dense_shape[0])
    count = np.bincount(label.indices[:, 0].numpy(), minlength=rows)
    wrong = np.flatnonzero(count != 1)
    if len(wrong):
        file, row = _place(files, first + int(wrong[0]))
        raise UserError(
            key="label",
            received=f"{count[wrong[0]]} values of `{name}` in example {row:,} of "
            f"{file}",
            expected="exactly one in each example",
            remedy="Leave rows without a label out: `data.unlabelled: drop`.",
        )


def _place(files: Sequence[str], row: int) -> tuple[str, int]:
    """The file of a row, and its index there."""
    for file in files:
        rows = int(read.records([file]).reduce(np.int64(0), lambda n, _: n + 1))
        if row < rows:
            break
        row -= rows
    return file, row


def _learned(
    batch: tf.Tensor, label: np.ndarray, question: Question, candidate: Model
) -> Learned:
    """Compares the raw label, which judges predictions, with the learned label.

    Raises:
      UserError: A class differs.
    """
    label = label[:_COMPARED]
    learned = candidate.learned(batch[:_COMPARED], question.label)
    if learned is None:
        return Learned()
    differs = ~np.isclose(learned, label, rtol=1e-4, equal_nan=True)
    wrong, numbers = np.flatnonzero(differs), label != 0
    facts = Learned(
        rows=len(label),
        changed=len(wrong),
        numbers=int(numbers.sum()),
        changed_numbers=int((differs & numbers).sum()),
        example=(float(label[wrong[0]]), float(learned[wrong[0]]))
        if len(wrong)
        else (),
    )
    if facts.changed and question.task != "regression":
        raise facts.error(question.label)
    return facts  # perhaps clipped for training: still comparable


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


def _checked(
    model: Model, batch: tf.Tensor, label: np.ndarray, question: Question
) -> np.ndarray:
    """The answers of a model to a batch, float64 [rows, k]."""
    answer, task = model.predict(batch), question.task
    single = task != "multi_class"
    if len(answer) != len(label):
        raise model.error(f"gives {len(answer)} answers to {len(label)} examples.")
    if single != (answer.shape[1] == 1):
        needed = "one number" if single else "one probability per class"
        raise model.error(
            f"gives {counted(answer.shape[1], 'number')} per example; task {task} "
            f"needs {needed}. Correct evaluator.task, or the model's last layer."
        )
    if not single and label.max() >= answer.shape[1]:
        raise model.error(
            f"knows {answer.shape[1]} classes, but label `{question.label}` is "
            f"{label.max():g} in the eval split (classes count from 0)."
        )
    if task != "regression":
        _check_probabilities(answer, question, model)
    return answer


def _check_probabilities(answer: np.ndarray, question: Question, model: Model) -> None:
    task = question.task
    layer = "softmax" if task == "multi_class" else "sigmoid"
    remedy = f"End the model, or its `{SERVE}`, with a {layer}"
    declared = question.from_logits
    if model.from_logits if declared is None else declared:
        why = "its compiled loss has from_logits=True"
        if declared:
            why = "evaluator.from_logits is true"
        raise model.error(
            f"predicts logits ({why}); task {task} needs probabilities. {remedy}, and "
            f"take from_logits=True from its loss."
        )
    known = answer[~np.isnan(answer)]
    if known.size and (known.min() < -EPSILON or known.max() > 1 + EPSILON):
        raise model.error(
            f"predicts numbers from {known.min():.4g} to {known.max():.4g}; task "
            f"{task} needs probabilities. {remedy}."
        )


def _columns(answer: np.ndarray, label: np.ndarray, task: str) -> Columns:
    if task != "multi_class":
        return {"prediction": answer[:, 0]}
    known = np.isfinite(answer).all(axis=1)
    clipped = np.clip(answer, EPSILON, 1 - EPSILON)  # first, as in Keras
    chosen = clipped[np.arange(len(label)), label.astype(np.int64)]
    right = np.where(known, answer.argmax(axis=1) == label, np.nan)
    return {"right": right, "loss": np.log(clipped.sum(axis=1)) - np.log(chosen)}


def _slice_value(value: bytes | np.number) -> str | int | float:
    """The value that names a slice; equal for all values of the slice.

    A float32 becomes the shortest decimal that stands for it: 0.1, not 0.10000000149.
    """
    if isinstance(value, bytes):
        # Bytes other than UTF-8 stay distinct: `\xff` and `\xfe` are two slices.
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.floating):
        # A dict treats each NaN as a new key, unless it is the same object.
        return math.nan if np.isnan(value) else float(str(value)) + 0.0  # no -0.0
    return int(value)

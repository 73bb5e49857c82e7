"""The rows of a batch of raw examples as an evaluation needs them.

Label and weight are read from the raw examples, or are made by the preprocessing of the
candidate. TensorFlow and numpy only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.evaluation.by_query import checks as query_checks
from strategos.components.evaluation.classes.entries import SliceMembership, all_names
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.inputs.models import Model
from strategos.components.evaluation.inputs.numbering import Numbering
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.intervals.resampling import Resampled
from strategos.components.evaluation.metrics import METRICS, metric_names
from strategos.components.evaluation.scored import Learned
from strategos.components.evaluation.slices import membership
from strategos.components.evaluation.slices.slicing import Slicing, slicings
from strategos.components.records import read
from strategos.components.targets.label import Label

_ONE_VALUE = {
    "label": "Leave rows without a label out: `data.unlabelled: drop`.",
    "weight": "Fill it before the data are read; a row that does not count weighs 0.",
    "evaluator.query": "Name a column with one value, the query of the row.",
}
_KEY = (0x5BD1E995, 0xC2B2AE35)  # any two numbers; equal in all processes
_COMPARED = 1_000  # rows of a shard on which raw and transformed label are compared


@dataclass(frozen=True)
class Question:
    """Features to read from the examples, and metrics to compute.

    Attributes:
      task: One of `metrics.TASKS`.
      metrics: Names in `metrics.METRICS` that are defined for the task.
      label: The label, as `Label.text`. A string label is read after the candidate's
        own preprocessing (signature `transform_features`), e.g. "yes" as 1; so is the
        vector of a row's classes.
      slices: The slicings.
      types: Dtype by raw feature: of those of `slices`, of `query`, and of the label
        and the weight if they are raw. Others are read after the candidate's own
        preprocessing.
      weight: The feature that weights the rows; "" for none.
      head: The model's output that is compared; "" for a model with one head.
      heads: The question for each head of a model with several; then nothing but the
        weight is read for this one.
      from_logits: Whether predictions are logits (`evaluator.from_logits`) of which
        probabilities are made; None: as recorded in each model.
      resampled: Sums to resample for confidence intervals.
      query: The feature with the query of each row; "" without metrics by query.
    """

    task: str
    metrics: Sequence[str]
    label: str
    slices: Sequence[Slicing]
    types: Mapping[str, tf.DType]
    from_logits: bool | None = None
    weight: str = ""
    head: str = ""
    heads: Mapping[str, Question] = field(default_factory=dict)
    resampled: Resampled = ""
    query: str = ""

    @classmethod
    def of(
        cls,
        evaluator: Mapping[str, Any],
        label: str,
        weight: str,
        types: Mapping[str, tf.DType],
    ) -> Question:
        """The question of an evaluator section.

        Args:
          evaluator: The section: task, metrics, slices, bounds, from_logits.
          label: The label, as `Label.text`.
          weight: The feature that weights the rows; "" for none.
          types: Dtype by raw feature that is read.

        Raises:
          UserError: A feature in bins is a text.
        """
        sections, labels = naming.sections(evaluator), Label.of(label).heads
        if sections:
            questions = {
                head: dataclasses.replace(
                    cls.of(section, labels[head].text, weight, types), head=head
                )
                for head, section in sections.items()
            }
            return cls(
                *("", (), label, (), types, None, weight),
                heads=questions,
                resampled=resampling.wanted(evaluator),
            )
        names, slices = metric_names(evaluator), slicings(evaluator)
        for part in (part for each in slices for part in each.parts):
            if part.edges and types[part.feature] == tf.string:
                raise UserError(
                    f"`{part.feature}` is a text, and bins are ranges of numbers",
                    key="evaluator.slices",
                    remedy="Remove its `bins`, to slice by each of its values.",
                )
        logits = evaluator.get("from_logits")
        fields = evaluator["task"], tuple(names), label, tuple(slices)
        resampled = resampling.wanted(evaluator)
        query = query_checks.column(names, evaluator, types)
        return cls(*fields, types, logits, weight, resampled=resampled, query=query)

    @property
    def target(self) -> Label:
        """The label."""
        return Label.of(self.label)

    @property
    def by_head(self) -> Mapping[str, Question]:
        """The question for each head; for a model with one head, under ""."""
        return self.heads or {"": self}

    @property
    def by_query(self) -> list[str]:
        """The metrics by query."""
        return [name for name in self.metrics if METRICS[name].by_query]

    def classes(self, candidate: Model, label: np.ndarray) -> Sequence[str]:
        """Names of the classes of multi_label; () for another task of a label.

        Of reconstruction the feature of each value.

        Args:
          candidate: The model that knows the names of the classes of one column.
          label: float64 [rows, classes].
        """
        if self.target.reconstructs:
            widths = candidate.reconstructs.items()
            return [name for name, width in widths for _ in range(width)]
        if self.task != "multi_label":
            return ()
        if self.target.is_several:
            return self.target.columns
        return all_names(candidate.class_names(self.head), label.shape[1])


class Rows:
    """A batch of serialized examples: label, weight and sliced features.

    Args:
      batch: string [rows].
      question: The features to read.
      candidate: Its preprocessing makes a label or weight that is not raw.
      files: The files of the batch.
      first: Number of rows of the files before the batch.
    """

    def __init__(
        self,
        batch: tf.Tensor,
        question: Question,
        candidate: Model,
        files: Sequence[str],
        first: int,
    ):
        self._batch, self._question, self._candidate = batch, question, candidate
        self._files, self._first = files, first
        types = question.types
        self._vector = question.task == "multi_label" and not question.target.is_several
        kinds = [types.get(name, tf.string) for name in question.target.withheld]
        is_raw = tf.string not in kinds and not self._vector
        self._raw_label = is_raw and not question.target.reconstructs
        spec = {name: tf.io.VarLenFeature(dtype) for name, dtype in types.items()}
        self._parsed = tf.io.parse_example(batch, spec) if spec else {}

    def label(self) -> np.ndarray:
        """The labels, float64 [rows]; class numbers if they are texts.

        Returns:
          For multi_label, float64 [rows, classes]; for reconstruction [rows, values].
        """
        question = self._question
        if question.target.reconstructs:
            values = self._candidate.reconstructed(self._batch)
            _check_features(values, question.classes(self._candidate, values))
            return values
        if self._vector:
            values = self._candidate.vectors(self._batch, question.label)
            _check_label(values.reshape(-1), question.label, question.task)
            return values
        columns = []
        for name in question.target.columns:
            columns.append(self._read("label", name))
            _check_label(columns[-1], name, question.task)
            if question.query:
                query_checks.label_is_relevance(columns[-1], name)
        if question.task == "multi_label":
            return np.stack(columns, axis=1)
        return columns[0]

    def weight(self) -> np.ndarray | None:
        """The weights, float64 [rows]; None without `weight`."""
        name = self._question.weight
        if not name:
            return None
        values = self._read("weight", name)
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            file, row = _place(self._files, self._first + int(wrong[0]))
            raise UserError(
                key="weight",
                received=f"{values[wrong[0]]:g} as `{name}` in example {row:,} of "
                f"{file}",
                expected="a finite number, 0 or more",
            )
        return values

    def learned(self, label: np.ndarray) -> Learned:
        """Compares a raw label, which judges predictions, with the learned label.

        Raises:
          UserError: A class differs.
        """
        if not self._raw_label:
            return Learned()
        columns = self._question.target.columns
        if len(columns) == 1:
            return self._learned(columns[0], label[:_COMPARED].reshape(-1))
        facts = (
            self._learned(name, label[:_COMPARED, i]) for i, name in enumerate(columns)
        )
        return functools.reduce(Learned.merge, facts)

    def _learned(self, name: str, label: np.ndarray) -> Learned:
        learned = self._candidate.learned(self._batch[:_COMPARED], name)
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
        if facts.changed and self._question.task != "regression":
            raise facts.error(name)
        return facts  # perhaps clipped for training: still comparable

    def numbering(self, model: Model, label: np.ndarray) -> Numbering:
        """The classes of the first rows by another model and by the candidate.

        Empty if the label is a number of the data, or the model's preprocessing does
        not return it.

        Args:
          model: The other model.
          label: float64 [rows, …], the label of the candidate.
        """
        some, name = self._batch[:_COMPARED], self._question.label
        made = None if self._raw_label else model.numbers(some, name, self._vector)
        if made is None:
            return Numbering()
        return Numbering.of(_bits(some), made, label[: len(made)])

    def check_learned_weight(self, weight: np.ndarray | None) -> None:
        """Rejects a raw weight that preprocessing changes under the same name."""
        name = self._question.weight
        if weight is None or name not in self._question.types:
            return
        learned = self._candidate.learned(self._batch[:_COMPARED], name)
        if learned is None:
            return
        wrong = ~np.isclose(learned, weight[:_COMPARED], rtol=1e-4)
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"`preprocessing_fn` changes `{name}`, the first time from "
                f"{weight[row]:g} to {learned[row]:g}: training and evaluation would "
                "weigh the rows differently",
                key="weight",
                remedy="Return the changed weights under another name, and name that "
                "one in `weight`.",
            )

    def query(self) -> tuple[np.ndarray, np.ndarray]:
        """The query of each row.

        Returns:
          uint64 [rows], random bits that stand for the query, and bool [rows], whether
          the row has one.
        """
        name = self._question.query
        values = self._parsed[name]
        self._check_one_value("evaluator.query", name, values, least=0)
        rows = values.indices[:, 0].numpy()
        query = np.zeros(len(self._batch), np.uint64)
        query[rows] = _bits(values.values)
        return query, np.isin(np.arange(len(query)), rows)

    def slices(self) -> dict[str, SliceMembership]:
        """The rows of each slice, by name of the slicing."""
        return membership.of(self._question.slices, self._parsed)

    def _read(self, key: str, name: str) -> np.ndarray:
        """One number of each row, float64 [rows]."""
        values = self._parsed.get(name)
        if values is not None:
            self._check_one_value(key, name, values)
        if values is None or values.dtype == tf.string:
            made = self._candidate.transformed(self._batch, name, key)
            if len(made) != len(self._batch):
                raise UserError(
                    f"`preprocessing_fn` makes {len(made)} values of `{name}` of "
                    f"{len(self._batch)} examples",
                    key=key,
                    expected="exactly one of each example",
                )
            return made
        return values.values.numpy().astype(np.float64)

    def _check_one_value(
        self, key: str, name: str, values: tf.SparseTensor, least: int = 1
    ) -> None:
        rows = int(values.dense_shape[0])
        count = np.bincount(values.indices[:, 0].numpy(), minlength=rows)
        wrong = np.flatnonzero((count < least) | (count > 1))
        if len(wrong):
            file, row = _place(self._files, self._first + int(wrong[0]))
            raise UserError(
                key=key,
                received=f"{count[wrong[0]]} values of `{name}` in example {row:,} of "
                f"{file}",
                expected=f"{'exactly' if least else 'at most'} one in each example",
                remedy=_ONE_VALUE[key],
            )


def _bits(values: tf.Tensor) -> np.ndarray:
    """Random bits for each value, uint64 [n]; equal for equal values."""
    if values.dtype == tf.string:
        values = tf.strings.to_hash_bucket_strong(values, tf.int64.max, _KEY)
    return resampling.mixed(values.numpy().astype(np.uint64))


def _place(files: Sequence[str], row: int) -> tuple[str, int]:
    """The file of a row, and its index there."""
    for file in files:
        rows = int(read.records([file]).reduce(np.int64(0), lambda n, _: n + 1))
        if row < rows:
            break
        row -= rows
    return file, row


def _check_features(values: np.ndarray, names: Sequence[str]) -> None:
    """Rejects features to reconstruct that are not finite."""
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row, column = wrong[0]
        raise UserError(
            key="label",
            received=f"{values[row, column]:g} in feature `{names[column]}` after "
            "`preprocessing_fn`, in the eval split",
            expected="finite numbers to reconstruct",
        )


def _check_label(label: np.ndarray, name: str, task: str) -> None:
    if task in ("binary", "multi_label"):
        wrong = label[(label != 0) & (label != 1)]
        allowed = f"0 or 1 for task {task}"
    elif task == "multi_class":
        wrong = label[(label < 0) | (label != np.floor(label))]
        allowed = "class numbers 0, 1, 2, … for task multi_class"
    else:
        wrong = label[~np.isfinite(label)]
        allowed = "finite numbers for task regression"
    if len(wrong):
        raise UserError(
            key="label",
            received=f"{wrong[0]:g} as `{name}` in the eval split",
            expected=allowed,
        )

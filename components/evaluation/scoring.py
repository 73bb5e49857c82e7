"""Scores a file of examples in large batches; TensorFlow and numpy only."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.evaluation.by_query import totals
from strategos.components.evaluation.by_query.rows import Writer
from strategos.components.evaluation.classes import ranking
from strategos.components.evaluation.formulas import EPSILON
from strategos.components.evaluation.inputs import same_classes
from strategos.components.evaluation.inputs.models import Location, Model, loaded
from strategos.components.evaluation.inputs.rows import Question, Rows
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.library.classes import is_known
from strategos.components.evaluation.metrics import (
    RANK,
    probability,
    top,
)
from strategos.components.evaluation.plots import counts
from strategos.components.evaluation.scored import Queries, Scored
from strategos.components.evaluation.sums import Sums
from strategos.components.exported import SERVE
from strategos.components.files import exchange, storage
from strategos.components.files.filesystems import is_remote
from strategos.components.records import read
from strategos.components.shards import progress
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.wording import choices, counted

BATCH = 10_000
_VALUES = 1 << 20  # of a batch
SHARD_BYTES = 1 << 17  # smaller files are scored together


@dataclass(frozen=True)
class Scorer:
    """Runs models over files of examples, in any thread of any process.

    Attributes:
      question: Features to read and metrics to compute.
      models: The models, the candidate first; the candidate's preprocessing reads a
        string label.
      folder: Folder for the rows of queries, which all workers see: a path or URL.
    """

    question: Question
    models: tuple[Location, ...]
    folder: str = ""

    @contextlib.contextmanager
    def sent(self, url: str | None, here: str) -> Iterator[Scorer]:
        """Copies the models to workers that do not see them, for the time of the block.

        Yields:
          The scorer for the workers.

        Args:
          url: The folder for copies, and for files that workers write; see `exchange`.
          here: A local folder for these files, if workers see it.

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
            folder = ""
            if any(each.query for each in self.question.by_head.values()):
                folder = stack.enter_context(exchange.folder(url, here))
            yield Scorer(self.question, tuple(models), folder)

    def __call__(self, files: Sequence[str]) -> Scored:
        """Scores the rows of some files; an optional model that fails is left out.

        Args:
          files: TFRecord files of tf.Examples; names that end with `.gz` mean GZIP.

        Raises:
          UserError: Labels are missing or do not fit the task, or predictions do not.
        """
        question, models = self.question, loaded.get(self.models)
        scored = _nothing(question)
        scored.heads = {head: _nothing(own) for head, own in question.heads.items()}
        writers = {head: Writer(self.folder) for head in question.by_head}
        width = sum(models[0].reconstructs.values()) or 1
        size = max(1, min(BATCH, _VALUES // width))
        for batch, times in _batches(files, bool(question.resampled), size):
            answers = _Answers(models, batch)
            for head, own in question.heads.items():
                part = scored.heads[head]
                rows = Rows(batch, own, models[0], files, part.sums.examples)
                self._add(part, rows, own, answers, times, writers[head])
                for name, why in part.unusable.items():
                    scored.unusable.setdefault(name, f"{head}: {why}")
            rows = Rows(batch, question, models[0], files, scored.sums.examples)
            if question.heads:
                scored.sums.add(np.zeros(len(batch)), {}, {}, rows.weight())
            else:
                self._add(scored, rows, question, answers, times, writers[""])
            progress.add(len(batch))
        # Here and not where all are merged, one after another.
        for head, each in scored.by_head.items():
            each.sums.compact()
            writers[head].flush()
            files, without = writers[head].files, writers[head].without_query
            each.queries = Queries(tuple(files), without_query=without)
        return scored

    def _add(
        self,
        scored: Scored,
        rows: Rows,
        question: Question,
        answers: _Answers,
        times: np.ndarray | None,
        writer: Writer,
    ) -> None:
        """Adds the rows of a batch, as one head answers them."""
        label, weight = rows.label(), rows.weight()
        if not scored.sums.examples:
            scored.learned = rows.learned(label)
            rows.check_learned_weight(weight)
        candidate = answers.models[0]
        names, width = question.classes(candidate, label), 0
        scores = {}
        for place, location in enumerate(self.models):
            if location.name in scored.unusable:
                continue
            model = answers.models[place]
            try:
                outputs = answers.of(place)
                _check_features(model, candidate, question)
                if place and not scored.sums.examples:
                    compared = model, candidate, rows, label, question
                    scored.numbering = same_classes.numbering(*compared)
                answer = model.answer(outputs, question.head)
                answer = _checked(model, answer, label, question)
                width = width or answer.shape[1]
                if question.target.reconstructs:
                    answer = answers.in_units_of_candidate(place, answer, label)
                else:
                    classes = question, names, width
                    answer = same_classes.in_order(model, candidate, answer, *classes)
                    _check_classes(model, answer, label, question)
                scored.positive = scored.positive or same_classes.exchanged(
                    model, candidate, question
                )
            except UserError as error:
                if not location.optional:
                    raise
                scored.unusable[location.name] = error.message
                continue
            columns = _columns(answer, label, question.task)
            if any(map(top, question.metrics)):
                columns |= {RANK: ranking.of(answer, label, question.task)}
            if question.task == "multi_class" and any(map(is_known, question.metrics)):
                columns |= {probability(i): p for i, p in enumerate(answer.T)}
            scores[location.name] = columns
            scored.widen(location.name, answer)
            known = names or candidate.class_names(question.head)
            earlier = scored.plots.get(location.name)
            plot_counts = counts.of(
                question.task, label, answer, weight, known, earlier
            )
            scored.count(location.name, plot_counts)
        slices = rows.slices()
        scored.sums.add(label, scores, slices, weight, names, times)
        if question.query:
            writer.add(*rows.query(), label, scores, slices, weight)


def _batches(
    files: Sequence[str], resampled: bool, size: int
) -> Iterator[tuple[tf.Tensor, np.ndarray | None]]:
    """Yields batches of rows, and how often each row counts in each resample."""
    if not resampled:
        yield from ((batch, None) for batch in read.batches(files, size))
        return
    for file in files:
        first = 0
        for batch in read.batches([file], size):
            yield batch, resampling.times(file, first, len(batch))
            first += len(batch)


class _Answers:
    """The answers of models to a batch, each asked once for all of its heads."""

    def __init__(self, models: Sequence[Model], batch: tf.Tensor):
        self.models, self._batch = models, batch
        self._outputs: dict[int, Mapping[str, tf.Tensor]] = {}

    def of(self, place: int) -> Mapping[str, tf.Tensor]:
        """Outputs by name of the model in this place.

        Raises:
          UserError: The model fails.
        """
        if place not in self._outputs:
            self._outputs[place] = self.models[place].predict(self._batch)
        return self._outputs[place]

    def in_units_of_candidate(
        self, place: int, answer: np.ndarray, features: np.ndarray
    ) -> np.ndarray:
        """The candidate's features plus the model's own errors of reconstruction.

        Each model reconstructs the features that its own preprocessing makes, for
        example of other means and variances; errors are those of the scores it serves.

        Args:
          place: Index of the model.
          answer: float64 [rows, values], the model's answer, in its own order.
          features: float64 [rows, values], of the candidate's preprocessing.
        """
        if place == 0:
            return answer
        own, wanted = (self.models[i].reconstructs for i in (place, 0))
        errors = answer - self.models[place].reconstructed(self._batch)
        parts = np.split(errors, np.cumsum([*own.values()])[:-1], axis=1)
        of_feature = dict(zip(own, parts, strict=True))  # perhaps in another order
        return features + np.concatenate([of_feature[name] for name in wanted], axis=1)


def _check_features(model: Model, candidate: Model, question: Question) -> None:
    """Rejects a model that does not reconstruct the features of the candidate."""
    if not question.target.reconstructs and model.reconstructs:
        raise model.error("reconstructs features: it was trained without a label.")
    if question.target.reconstructs and not model.reconstructs:
        raise model.error("reconstructs no features: it was trained on a label.")
    if model.reconstructs != candidate.reconstructs:
        own, other = (
            choices([f"{name} [{width}]" for name, width in each.reconstructs.items()])
            for each in (model, candidate)
        )
        raise model.error(
            f"reconstructs other features: {own}; the candidate: {other}."
        )


def _nothing(question: Question) -> Scored:
    arguments = question.metrics, question.task, question.slices, question.resampled
    return Scored(Sums(*arguments))


def scored(engine: Engine, files: Sequence[str], scorer: Scorer, folder: str) -> Scored:
    """Scores the rows of files on the engine of a run.

    Args:
      engine: The engine.
      files: At least one.
      scorer: The models and the question.
      folder: A folder that this process and the workers see, for temporary files.

    Raises:
      UserError: See `Scorer`.
      OSError: A file cannot be written or read.
    """
    url, here = engine.exchange, folder
    if url is None and is_remote(folder):
        is_direct = engine.runner == "direct"  # its workers are on this machine
        url, here = None if is_direct else folder, tempfile.gettempdir()
    with scorer.sent(url, here) as work:
        result = fold(engine, shards(files), work, Scored.merge, folder)
        same_classes.reject_moved(result, scorer.question, scorer.models[1:])
        names = [model.name for model in scorer.models]
        for head, own in scorer.question.by_head.items():
            if own.query:
                totals.add(result.by_head[head], own.by_query, names, work.folder)
    return result


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


def _checked(
    model: Model, answer: np.ndarray, label: np.ndarray, question: Question
) -> np.ndarray:
    """The answers of a model to a batch as its task needs them, float64 [rows, k]."""
    task = question.task
    single = task in ("binary", "regression")
    if len(answer) != len(label):
        raise model.error(f"gives {len(answer)} answers to {len(label)} examples.")
    if label.ndim > 1:
        if answer.shape[1] != label.shape[1] and not question.target.reconstructs:
            raise model.error(
                f"gives {counted(answer.shape[1], 'number')} per example, and label "
                f"`{question.target.name}` has {label.shape[1]:,}; task {task} "
                "compares them one by one."
            )
        if answer.shape[1] != label.shape[1]:
            raise model.error(
                f"gives {counted(answer.shape[1], 'number')} per example, and the "
                f"features to reconstruct have {label.shape[1]:,}."
            )
    elif single != (answer.shape[1] == 1):
        needed = "one number" if single else "one probability per class"
        raise model.error(
            f"gives {counted(answer.shape[1], 'number')} per example; task {task} "
            f"needs {needed}. Correct evaluator.task, or the model's last layer."
        )
    ranking.check(answer.shape[1], question.metrics)
    if task in ("regression", "reconstruction"):
        return answer
    return _probabilities(answer, question, model)


def _check_classes(
    model: Model, answer: np.ndarray, label: np.ndarray, question: Question
) -> None:
    if question.task == "multi_class" and label.max() >= answer.shape[1]:
        raise model.error(
            f"knows {answer.shape[1]} classes, but label `{question.label}` is "
            f"{label.max():g} in the eval split (classes count from 0)."
        )


def _probabilities(answer: np.ndarray, question: Question, model: Model) -> np.ndarray:
    """The answers as probabilities: logits go through sigmoid or softmax.

    The Trainer's record of each model comes before `evaluator.from_logits`, as the
    model in production may differ from the candidate; false overrules a record.
    """
    task, declared = question.task, question.from_logits
    recorded = model.takes_logits(question.head)
    if declared is not False and (recorded or (declared and recorded is None)):
        return _softmax(answer) if task == "multi_class" else _sigmoid(answer)
    known = answer[~np.isnan(answer)]
    if known.size and (known.min() < -EPSILON or known.max() > 1 + EPSILON):
        layer = "softmax" if task == "multi_class" else "sigmoid"
        raise model.error(
            f"predicts numbers from {known.min():.4g} to {known.max():.4g}; task "
            f"{task} needs probabilities. End the model, or its `{SERVE}`, with a "
            f"{layer}; if the numbers are logits, set `evaluator.from_logits: true`."
        )
    return answer


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(logits))  # never overflows
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _columns(answer: np.ndarray, label: np.ndarray, task: str) -> dict[str, np.ndarray]:
    if task != "multi_class":
        return {"prediction": answer if label.ndim > 1 else answer[:, 0]}
    known = np.isfinite(answer).all(axis=1)
    clipped = np.clip(answer, EPSILON, 1 - EPSILON)  # first, as in Keras
    chosen = clipped[np.arange(len(label)), label.astype(np.int64)]
    right = np.where(known, answer.argmax(axis=1) == label, np.nan)
    predicted = np.where(known, answer.argmax(axis=1), np.nan)
    loss = np.log(clipped.sum(axis=1)) - np.log(chosen)
    return {"right": right, "loss": loss, "predicted": predicted}

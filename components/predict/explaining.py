"""How much each raw feature of a row contributes to its prediction.

The contributions are Shapley values of the features, sampled by permutations
(Strumbelj and Kononenko, Knowledge and Information Systems 41, 2014). A feature that is
"unknown" has the value of a background row, so the base value is the mean prediction of
the background rows. For each background row the features get the values of the
explained row one after the other, in a random order and in the reverse of that order;
the contribution of a feature is the mean change of the prediction at its turn. The
contributions and the base value add up to the prediction for any number of background
rows; their expectation over the orders is the Shapley value itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strategos.components import exported
from strategos.components.errors import BadInputError, Place, UserError, required
from strategos.components.predict.model import Signature
from strategos.components.predict.piped import on_disk
from strategos.components.predict.rows import Columns, of_file
from strategos.components.records import columns as stored
from strategos.components.slow_imports import pa
from strategos.components.wording import counted, cut

BACKGROUND_ROWS = 100

_SEED = 1
_MOST_BATCHES = 32  # of the training data that the background rows are drawn from
_BATCH_ROWS = 4096
_SHOWN = 8  # features of a row in a terminal
_WIDTH = 24
_SMALL = 1e-2  # numbers that are all smaller are shown with an exponent


@dataclasses.dataclass(frozen=True)
class Part:
    """The contribution of one feature.

    Attributes:
      feature: Name of the raw column.
      value: Its value in the row; None if missing.
      contribution: In units of the output.
    """

    feature: str
    value: Any
    contribution: float


def of_training(examples: str, columns: Columns) -> pa.RecordBatch:
    """Background rows: a random sample of the rows that a model was trained on.

    Args:
      examples: URI of the Examples artifact of the training.
      columns: The columns of the model.

    Returns:
      At most `BACKGROUND_ROWS` rows, in the form of `Columns.converted`.

    Raises:
      BadInputError: The examples are gone.
    """
    files = stored.files(examples, "train")
    batches = [batch for file in files for batch in stored.stored_batches(file)]
    if not batches:
        raise BadInputError(
            f"{examples} has no columns of the rows that the model was trained on",
            key="--explain",
            remedy="Name a file with such rows: --background FILE.",
        )
    chosen = np.linspace(0, len(batches) - 1, min(len(batches), _MOST_BATCHES))
    parts = [columns.as_converted(batches[int(each)].read()) for each in chosen]
    return drawn(pa.Table.from_batches(parts).combine_chunks().to_batches()[0])


def of_rows(path: str, columns: Columns) -> pa.RecordBatch:
    """Background rows: a random sample of a file's rows.

    Args:
      path: A file of rows as they are predicted, such as a JSON document.
      columns: The columns of the model.

    Raises:
      BadInputError: The file has no row, or one that cannot be predicted.
    """
    with on_disk(path) as file:
        parts = {
            id(rows): rows
            for each in of_file(file.path, columns)
            for rows, _ in [required(each.features)]
        }
    if not parts:
        raise BadInputError("has no rows", place=Place(path), key="--background")
    table = pa.Table.from_batches(list(parts.values()))
    return drawn(table.combine_chunks().to_batches()[0])


def drawn(rows: pa.RecordBatch) -> pa.RecordBatch:
    """At most `BACKGROUND_ROWS` of some rows, drawn at random with a fixed seed."""
    draw = np.random.default_rng(_SEED)
    number = min(BACKGROUND_ROWS, rows.num_rows)
    return rows.take(np.sort(draw.choice(rows.num_rows, number, replace=False)))


class Explainer:
    """Explains rows of one model.

    Args:
      signature: The model.
      columns: Its columns.
      background: Rows in the form of `Columns.converted`, at least one.
    """

    def __init__(
        self, signature: Signature, columns: Columns, background: pa.RecordBatch
    ):
        self._signature, self._columns = signature, columns
        self._background = background
        self._names = sorted(columns.used)
        self._outputs: dict[str, np.ndarray] = {}

    def explain(self, row: pa.RecordBatch) -> dict[str, Any]:
        """The contributions to the outputs for a row.

        Args:
          row: One row in the form of `Columns.converted`.

        Returns:
          JSON-able facts by output: `value`, the explained prediction; `class`, its
          name or index if the output has several values, of which the largest one is
          explained; `base`; and `contributions`, a list of `feature`, `value` and
          `contribution`, the largest first.

        Raises:
          UserError: No output of the model is a number or a vector of numbers.
          ModelFailsError: The model fails on a mixture of the row and another one.
        """
        known = self._predicted(row)
        explained = {name: int(np.argmax(value[0])) for name, value in known.items()}
        base, parts = self._sampled(row, known, explained)
        values = {name: row.column(name)[0].as_py() for name in self._names}
        return {
            output: {
                "value": float(known[output][0, index]),
                **self._class_of(output, index, known[output].shape[1]),
                "base": float(base[output]),
                "contributions": [
                    dataclasses.asdict(
                        Part(
                            name := self._names[each],
                            _plain(values[name]),
                            float(parts[output][each]),
                        )
                    )
                    for each in np.argsort(-np.abs(parts[output]), kind="stable")
                ],
            }
            for output, index in explained.items()
        }

    def _sampled(
        self,
        row: pa.RecordBatch,
        known: Mapping[str, np.ndarray],
        explained: Mapping[str, int],
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """The base value and the contributions, float64[features], of each output."""
        rows, width = self._background.num_rows, len(self._names)
        both = _stacked(row, self._background)
        draw = np.random.default_rng(_SEED)
        sums = {name: np.zeros(width) for name in explained}
        bases = dict.fromkeys(explained, 0.0)
        at_once = max(1, _BATCH_ROWS // (2 * width))
        for start in range(0, rows, at_once):
            own = np.arange(start, min(start + at_once, rows))
            ranks = _ranks(draw, len(own), width)  # [rows, 2, features]
            turns = np.arange(width)  # at turn k, k features are those of the row
            is_set = ranks[:, :, None, :] < turns[:, None]
            chosen = np.where(is_set, 0, 1 + own[:, None, None, None])
            mixed = chosen.reshape(-1, width)
            predictions = self._predicted(_taken(both, self._names, mixed))
            for name, index in explained.items():
                values = predictions[name][:, index].reshape(len(own), 2, width)
                last = np.full((len(own), 2, 1), known[name][0, index])
                changes = np.diff(np.concatenate([values, last], 2), axis=2)
                turned = np.take_along_axis(changes, ranks, 2)
                sums[name] += turned.sum((0, 1)) / (2 * rows)
                bases[name] += values[:, :, 0].sum() / (2 * rows)
        return bases, sums

    def _predicted(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        """The outputs that are explained, float64[rows, values] each."""
        examples = self._columns.encoded(rows).to_pylist()
        parts: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(examples), _BATCH_ROWS):
            outputs = self._signature(examples[start : start + _BATCH_ROWS])
            first = [x for x in (exported.ERROR, exported.OUTPUT) if x in outputs][:1]
            chosen = first or outputs
            for name in chosen:
                values = np.array(outputs[name])
                if values.dtype.kind in "fiu" and values.ndim in (1, 2):
                    values = values.reshape(len(values), -1).astype(np.float64)
                    parts.setdefault(name, []).append(values)
        if not parts:
            raise UserError("the model has no output of numbers to explain")
        return {name: np.concatenate(each) for name, each in parts.items()}

    def _class_of(self, output: str, index: int, width: int) -> dict[str, Any]:
        if width == 1:
            return {}
        known = self._columns.named.get(output, ())
        names = exported.value_names(known, width) or range(width)
        return {"class": str(names[index])}


def lines(explanation: Mapping[str, Any]) -> list[str]:
    """The lines of a terminal for a result of `Explainer.explain`."""
    texts = []
    for output, facts in explanation.items():
        if not isinstance(facts, dict):
            return [f"{output}: {facts}"]
        name = " ".join(filter(None, [output, facts.get("class")]))
        parts = facts["contributions"]
        largest = max(map(abs, [facts["base"], *(x["contribution"] for x in parts)]))
        form = "9.2e" if 0 < largest < _SMALL else "9.4f"
        texts.append(f"{'base of ' + name:{2 * _WIDTH}} {facts['base']:{form}}")
        for part in parts[:_SHOWN]:
            value = "missing" if part["value"] is None else str(part["value"])
            text = f"{cut(part['feature'], _WIDTH)} = {cut(value, _WIDTH)}"
            texts.append(f"  {text:{2 * _WIDTH - 2}} {part['contribution']:+{form}}")
        others = parts[_SHOWN:]
        if others:
            rest = sum(part["contribution"] for part in others)
            text = f"{counted(len(others), 'other feature')}"
            texts.append(f"  {text:{2 * _WIDTH - 2}} {rest:+{form}}")
    return texts


def _ranks(draw: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """The turns of features, int[rows, 2, width]: a random order and its reverse."""
    order = np.argsort(draw.random((rows, width)), axis=1)
    ranks = np.argsort(order, axis=1)
    return np.stack([ranks, width - 1 - ranks], axis=1)


def _stacked(row: pa.RecordBatch, background: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([row, background]).combine_chunks().to_batches()[0]


def _taken(
    rows: pa.RecordBatch, names: Sequence[str], chosen: np.ndarray
) -> pa.RecordBatch:
    """Rows that are mixed from others.

    Args:
      rows: The others.
      names: The columns.
      chosen: Indices of `rows`, int[rows, names].
    """
    columns = [
        rows.column(name).take(pa.array(chosen[:, number]))
        for number, name in enumerate(names)
    ]
    return pa.RecordBatch.from_arrays(columns, list(names))


def _plain(values: list[Any] | None) -> Any:
    """A feature as a JSON-able value: alone if it is one, text as such."""
    plain = [_value(each) for each in values or ()]
    return (plain[0] if len(plain) == 1 else plain) if plain else None


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"{len(value):,} bytes"
    if isinstance(value, float):  # the shortest number that is the same float32
        return float(str(np.float32(value)))
    return value

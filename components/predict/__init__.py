"""Predicts rows with a pushed model, as a client of a model server would.

A SavedModel from the Trainer describes itself: `assets.extra/` contains the schema of
the raw data, the names of the features that the model needs, and the spellings of a
missing number. ExampleGen's own code reads and converts files, so a row has the same
values as in training. TensorFlow is imported after the rows are checked, in `model`;
`server` is a process that keeps the model loaded, and `client` asks it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components import exported
from strategos.components.errors import BadInputError, UserError, required
from strategos.components.predict.model import Model, ModelFailsError, Signature
from strategos.components.predict.rows import (
    STDIN,
    Columns,
    Row,
    of_file,
    of_texts,
    on_disk,
)
from strategos.components.wording import abridged, counted

__all__ = ["PROBLEM", "STDIN", "predict", "show"]

PROBLEM = "problem"
"""Name of the answer to a row that cannot be predicted."""

_BATCH_ROWS = 4096
_CLASSES = 5  # shown per row, the most probable ones


def predict(
    model_dir: str,
    rows: str | Path | Sequence[Row],
    *,
    mark: bool = False,
    load: Callable[[Path], Signature] = Model,
) -> list[dict[str, Any]]:
    """Predicts rows with an exported model.

    Args:
      model_dir: Folder of a SavedModel that the Trainer exported, or a folder of
        numbered versions; the newest version is used.
      rows: Path of a CSV file with a header, or of a Parquet file, read as training
        reads it; `STDIN`, or a pipe, for such a file there. Or rows of text by column
        name. The label, and columns that the model does not use, may be missing. An
        empty field is a missing value. Columns that the training data do not have,
        such as an id, are returned with the answer of their row.
      mark: Returns `{"problem": …}` for a row that cannot be predicted, instead of
        failing. Default: fails at the first such row.
      load: Loads the model of a folder, once the rows are checked.

    Returns:
      One dict per row, from output name to a number or a list of numbers. If the names
      of the classes are known, an output is a dict from name to probability.

    Raises:
      BadInputError: The model or the file is missing or malformed; a column is
        missing, or looks like one that is; a value has another type than its column.
      UserError: The model does not load, or fails on these rows.
    """
    folder = _version(Path(model_dir))
    columns = Columns.of(folder)
    if isinstance(rows, (str, Path)):
        with on_disk(str(rows)) as path:
            requests = list(of_file(path, columns, mark))
    else:
        requests = of_texts(rows, columns, mark)
    examples = [each.example for each in requests if each.example is not None]
    answers: list[dict[str, Any]] = []
    signature = load(folder) if examples else None
    for start in range(0, len(examples), _BATCH_ROWS):
        batch = examples[start : start + _BATCH_ROWS]
        answers += _of_batch(required(signature), batch, folder, mark)
    left = iter(answers)
    results = [{PROBLEM: x.problem} if x.problem else next(left) for x in requests]
    pairs = zip(requests, results, strict=True)
    return [{**x.extra, **_with_names(each, columns.named)} for x, each in pairs]


def show(
    answers: Sequence[Mapping[str, Any]], *, as_json: bool = False, model: str = ""
) -> None:
    """Prints predictions, one row per line.

    Args:
      answers: The result of `predict`.
      as_json: Prints each row as a JSON object instead of columns.
      model: Name of the model for the line on stderr; not used with `as_json`.
    """
    bad = sum(PROBLEM in answer for answer in answers)
    if as_json:
        for answer in answers:
            print(json.dumps(answer, default=str))
        return
    title = f"{counted(len(answers) - bad, 'row')}, predicted by {model}"
    title += f"; {counted(bad, 'row')} with a problem" * bool(bad)
    print(title, file=sys.stderr)
    for number, answer in enumerate(answers, start=1):
        values = (f"{name} {_text(value)}" for name, value in answer.items())
        print(f"{number:>6}  {'  '.join(values)}")


def _version(folder: Path) -> Path:
    if (folder / exported.SAVED_MODEL).exists():
        return folder
    versions = [path for path in folder.glob("*/") if path.name.isdigit()]
    if not versions:
        raise BadInputError(
            f"{folder} holds no model",
            remedy="Run the pipeline until a model is blessed and pushed: `strategos "
            "run`.",
        )
    return max(versions, key=lambda path: int(path.name))


def _of_batch(
    signature: Signature, batch: Sequence[bytes], folder: Path, mark: bool
) -> list[dict[str, Any]]:
    """The answers to some rows; with `mark`, a problem of a row is its answer."""
    try:
        outputs = signature(batch)
    except ModelFailsError as error:
        reason = f"the model fails on the rows: {error}"
        if not mark:
            raise UserError(f"{folder}: {reason}") from error
        if len(batch) == 1:
            return [{PROBLEM: reason}]
        half = len(batch) // 2
        parts = batch[:half], batch[half:]
        return [x for part in parts for x in _of_batch(signature, part, folder, mark)]
    return [
        {name: _plain(values[i]) for name, values in outputs.items()}
        for i in range(len(batch))
    ]


def _with_names(
    answer: dict[str, Any], named: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Replaces lists of probabilities by dicts from class name to probability.

    Applies to outputs with at least as many values as classes; the values beyond the
    classes are out-of-vocabulary buckets, named by their index.
    """
    found = {}
    for output, classes in named.items():
        values = answer.get(output)
        if isinstance(values, list) and len(values) >= len(classes):
            others = map(str, range(len(classes), len(values)))
            found[output] = dict(zip([*classes, *others], values, strict=True))
    return {**answer, **found}


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any) -> str:
    if isinstance(value, dict):
        likeliest = sorted(value.items(), key=lambda item: -item[1])
        return abridged([f"{name} {_text(p)}" for name, p in likeliest], _CLASSES)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.4f}" if isinstance(value, float) else str(value)

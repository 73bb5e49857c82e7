"""Predicts rows with a pushed model, as a client of a model server would.

A SavedModel from the Trainer describes itself: `assets.extra/` contains the schema of
the raw data, the names of the features that the model needs, and the spellings of a
missing number. ExampleGen's own code reads and converts files, so a row has the same
values as in training. TensorFlow is imported after the rows are checked, in `model`;
`server` is a process that keeps the model loaded, and `client` asks it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strategos.components import exported
from strategos.components.errors import BadInputError, Place, UserError, required
from strategos.components.predict import explaining
from strategos.components.predict.explaining import Explainer
from strategos.components.predict.model import Model, ModelFailsError, Signature
from strategos.components.predict.piped import STDIN, on_disk
from strategos.components.predict.rows import Asked, Columns, Row, of_file, of_texts
from strategos.components.wording import abridged, choices, counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PROBLEM", "STDIN", "predict", "show"]

EXPLANATION = "explanation"
"""Name of the contributions of features in an answer."""

Background = Callable[[Columns], "pa.RecordBatch"]
"""Returns background rows in the form of `Columns.converted`."""

PROBLEM = "problem"
"""Name of the answer to a row that cannot be predicted."""

_BATCH_ROWS = 4096
_CLASSES = 5  # shown per row, the most probable ones
_SMALL = 1e-3  # a smaller number has as many digits as any other


def predict(
    model_dir: str,
    rows: str | Path | Sequence[Row],
    *,
    mark: bool = False,
    files: Collection[str] = (),
    load: Callable[[Path], Signature] = Model,
    background: Background | None = None,
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
      files: Columns with paths of files, such as images, relative to the folder of
        `rows`; the content of a file is the value.
      load: Loads the model of a folder, once the rows are checked.
      background: Explains each answer as `explanation`, by the rows that this returns;
        see `explaining`.

    Returns:
      One dict per row, from output name to a number or a list of numbers. If the names
      of the classes are known, an output is a dict from name to probability.

    Raises:
      BadInputError: The model or the file is missing or malformed; a column is
        missing, or looks like one that is, or has the name of an output; a value has
        another type than its column.
      UserError: The model does not load, or fails on these rows.
    """
    folder = _version(Path(model_dir))
    columns = _reading_files(Columns.of(folder), files, rows)
    if isinstance(rows, (str, Path)):
        with on_disk(str(rows)) as file:
            asked = of_file(file.path, columns, mark)
            requests = [
                dataclasses.replace(each, problem=file.named(each.problem))
                for each in asked
            ]
    else:
        requests = of_texts(rows, columns, mark)
    examples = [each.example for each in requests if each.example is not None]
    answers: list[dict[str, Any]] = []
    signature = load(folder) if examples else None
    for start in range(0, len(examples), _BATCH_ROWS):
        batch = examples[start : start + _BATCH_ROWS]
        answers += _of_batch(required(signature), batch, folder, mark)
    _check_extra(requests, answers, rows)
    explain = None
    if background is not None and signature is not None:
        explain = Explainer(signature, columns, background(columns)).explain
    left = iter(answers)
    results = [{PROBLEM: x.problem} if x.problem else next(left) for x in requests]
    return [
        {**x.extra, **_with_names(each, columns.named), **_explained(explain, x, each)}
        for x, each in zip(requests, results, strict=True)
    ]


def _check_extra(
    requests: Sequence[Asked],
    answers: Sequence[Mapping[str, Any]],
    rows: str | Path | Sequence[Row],
) -> None:
    """Rejects columns that would have the name of an output in the answers.

    Raises:
      BadInputError: Names the column.
    """
    taken = {PROBLEM, EXPLANATION}.union(*answers[:1])
    extra = next((each.extra for each in requests if each.extra), {})
    for name in (each for each in extra if each in taken):
        where = str(rows) if isinstance(rows, (str, Path)) else "the rows"
        raise BadInputError(
            f"the answers have a value `{name}`, too",
            place=Place("standard input" if where == STDIN else where),
            remedy=f"Rename the column `{name}`, or leave it out.",
        )


def _reading_files(
    columns: Columns, files: Collection[str], rows: str | Path | Sequence[Row]
) -> Columns:
    """The columns, some of them with paths of files.

    Raises:
      BadInputError: The model does not use such a column, or it has no bytes.
    """
    possible = columns.of_bytes
    for name in files:
        if name not in possible:
            raise BadInputError(
                "the model takes no bytes or text of this name",
                key="--files",
                received=name,
                expected=choices(possible),
            )
    is_file = isinstance(rows, (str, Path)) and str(rows) != STDIN
    folder = Path(str(rows)).parent if is_file else Path()
    return dataclasses.replace(columns, files=dict.fromkeys(files, folder))


def _explained(
    explain: Callable[[Any], dict[str, Any]] | None, request: Asked, answer: Any
) -> dict[str, Any]:
    """The explanation of an answer; {} without one."""
    if explain is None or PROBLEM in answer:
        return {}
    rows, index = required(request.features)
    try:
        return {EXPLANATION: explain(rows.slice(index, 1))}
    except ModelFailsError as error:
        reason = f"the model fails on a mixture of this row and another one: {error}"
        return {EXPLANATION: {PROBLEM: reason}}


def show(
    answers: Sequence[Mapping[str, Any]],
    *,
    as_json: bool = False,
    model: str = "",
    of: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Prints predictions, one row per line.

    Args:
      answers: The result of `predict`.
      as_json: Prints each row as a JSON object instead of columns.
      model: Name of the model for the line on stderr; not used with `as_json`.
      of: From `scored`, the class of each output that is the score of one class; for
        the same line.
    """
    bad = sum(PROBLEM in answer for answer in answers)
    if as_json:
        for answer in answers:
            print(json.dumps(answer, default=str))
        return
    title = f"{counted(len(answers) - bad, 'row')}, predicted by {model}"
    title += f"; {counted(bad, 'row')} with a problem" * bool(bad)
    first = next((x for x in answers if PROBLEM not in x), {})
    for name in (x for x in of if isinstance(first.get(x), float)):
        title += f"; `{name}` is the score of `{of[name]}`"
    print(title, file=sys.stderr)
    for number, answer in enumerate(answers, start=1):
        shown = {name: x for name, x in answer.items() if name != EXPLANATION}
        in_order = exported.ERROR in answer  # of features, not of the likeliest class
        values = (f"{name} {_text(value, in_order)}" for name, value in shown.items())
        print(f"{number:>6}  {'  '.join(values)}")
        for line in explaining.lines(answer.get(EXPLANATION, {})):
            print(f"{'':10}{line}")


def scored(model_dir: str | Path) -> dict[str, str]:
    """The class that each output with one number scores, by output.

    Only for labels with two named classes.

    Args:
      model_dir: As for `predict`.
    """
    file = _version(Path(model_dir)) / exported.DESCRIPTION
    described = json.loads(file.read_text())
    heads = {exported.OUTPUT: described, **described.get("heads", {})}
    known = {name: facts.get("classes", ()) for name, facts in heads.items()}
    return {name: x[1] for name, x in known.items() if len(x) == 2}


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

    Applies to outputs with at least as many values as classes; see `value_names`.
    """
    probabilities = {}
    for output, classes in named.items():
        values = answer.get(output)
        if isinstance(values, list):
            names = exported.value_names(classes, len(values))
            if names:
                probabilities[output] = dict(zip(names, values, strict=True))
    return {**answer, **probabilities}


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any, in_order: bool = False) -> str:
    if isinstance(value, dict):
        items = value.items()
        likeliest = items if in_order else sorted(items, key=lambda item: -item[1])
        form = ".4g" if in_order else ".4f"  # of numbers of any size; of shares
        texts = [f"{name} {each:{form}}" for name, each in likeliest]
        return abridged(texts, _CLASSES)
    if isinstance(value, list):
        return f"[{', '.join(_text(each, in_order) for each in value)}]"
    if not isinstance(value, float):
        return str(value)
    is_small = 0 < abs(value) < _SMALL
    return f"{value:.4g}" if in_order or is_small else f"{value:.4f}"

"""Predicts rows of text with a pushed model, as a client of a model server would.

A SavedModel from the Trainer describes itself: `assets.extra/` contains the schema of
the raw data and the names of the features that the model needs. The module imports
TensorFlow, but not TFX.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import exported
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.user_code.user_errors import operation_error
from strategos.components.wording import abridged, counted
from strategos.components.worker_process import TENSORFLOW

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

Row = Mapping[str, str]

_BATCH_ROWS = 4096
_CLASSES = 5  # shown per row, the most probable ones


def predict(model_dir: str, rows: str | Path | Sequence[Row]) -> list[dict[str, Any]]:
    """Predicts rows with an exported model.

    Args:
      model_dir: Folder of a SavedModel that the Trainer exported, or a folder of
        numbered versions; the newest version is used.
      rows: Path of a CSV file with a header, or rows of text by column name. The label,
        and columns that the model does not use, may be missing. An empty field is a
        missing value.

    Returns:
      One dict per row, from output name to a number or a list of numbers. If the names
      of the classes are known, `predictions` is a dict from name to probability.

    Raises:
      BadInputError: The model or the file is missing; a column is unknown or missing;
        a value has another type than its column.
      UserError: The model does not load, or fails on these rows.
    """
    folder = _version(Path(model_dir))
    columns = _Columns.of(folder)
    if isinstance(rows, (str, Path)):
        named = list(_read_csv(Path(rows), columns))
    else:
        named = [(f"row {i}", row) for i, row in enumerate(rows, start=1)]
        for where, row in named:
            columns.check_names(where, row)
    answers = _answers(folder, columns.values(named))
    return [_with_names(answer, columns.classes) for answer in answers]


def show(
    answers: Sequence[Mapping[str, Any]], *, as_json: bool = False, model: str = ""
) -> None:
    """Prints predictions, one row per line.

    Args:
      answers: The result of `predict`.
      as_json: Prints each row as a JSON object instead of columns.
      model: Name of the model for the line on stderr; not used with `as_json`.
    """
    if as_json:
        for answer in answers:
            print(json.dumps(answer))
        return
    print(f"{counted(len(answers), 'row')}, predicted by {model}", file=sys.stderr)
    for number, answer in enumerate(answers, start=1):
        values = (f"{name} {_text(value)}" for name, value in answer.items())
        print(f"{number:>6}  {'  '.join(values)}")


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The raw columns of a model, by name.

    Attributes:
      features: All columns of the schema.
      used: Columns that the prediction depends on.
      unused: Columns that the model parses without using their values.
      label: Name of the label.
      classes: Names of the classes; () if unknown.
    """

    features: Mapping[str, schema_pb2.Feature]
    used: frozenset[str]
    unused: frozenset[str]
    label: str
    classes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> _Columns:
        from strategos.components.schema_file import read_schema

        schema_file, description = (
            folder / exported.SCHEMA,
            folder / exported.DESCRIPTION,
        )
        for file in (schema_file, description):
            if not file.exists():
                raise BadInputError(
                    f"{file} is missing: {folder} was not exported by Strategos, so "
                    "its columns are not known. Push it anew."
                )
        schema = read_schema(str(schema_file))
        described = json.loads(description.read_text())
        features = {feature.name: feature for feature in schema.feature}
        used, unused = described["features"], described.get("unused", ())
        return cls(
            features,
            frozenset(used),
            frozenset(unused),
            described["label"],
            tuple(described.get("classes", ())),
        )

    @property
    def needed(self) -> list[str]:
        """Used columns that every row must have."""
        return [name for name in sorted(self.used) if self._is_required(name)]

    def _is_required(self, name: str) -> bool:
        return self.features[name].HasField("shape")

    def check_names(self, where: str, names: Iterable[str]) -> None:
        """Rejects unknown columns and the absence of a needed column.

        Args:
          where: Place of the row or header, for the message.
          names: Columns of the row or header.

        Raises:
          BadInputError: Names the place and the column.
        """
        names = set(names)
        unknown = sorted(names - set(self.features) - {self.label})
        if unknown:
            raise BadInputError(
                f"unknown column {', '.join(unknown)}",
                place=Place(where),
                expected=", ".join(sorted(self.used)),
            )
        missing = [name for name in self.needed if name not in names]
        if missing:
            raise BadInputError(
                f"the model needs column {', '.join(missing)}", place=Place(where)
            )

    def values(self, rows: Iterable[tuple[str, Row]]) -> list[dict[str, list[Any]]]:
        """Converts rows to lists of values, by column, for all columns of the model."""
        fillers = {name: self._filler(name) for name in self.unused}
        return [
            {name: self._value(where, name, row.get(name)) for name in self.used}
            | fillers
            for where, row in rows
        ]

    def _filler(self, name: str) -> list[Any]:
        """Placeholder values for an unused column; [] if it may be missing."""
        if not self._is_required(name):
            return []
        feature = self.features[name]
        size = math.prod(dim.size for dim in feature.shape.dim)
        return [_NOTHING[feature.type]] * size

    def _value(self, where: str, name: str, text: str | None) -> list[Any]:
        if text is None or text == "":
            if name in self.needed:
                raise BadInputError(
                    "is empty, but the model needs a value",
                    place=Place(f"{where}, column {name}"),
                )
            return []
        kind = self.features[name].type
        try:
            return [_CONVERTERS[kind][0](text)]
        except ValueError:
            raise BadInputError(
                place=Place(f"{where}, column {name}"),
                received=repr(text),
                expected=_CONVERTERS[kind][1],
            ) from None


_CONVERTERS: dict[int, tuple[Any, str]] = {  # by schema_pb2.FeatureType
    1: (str.encode, "text"),  # BYTES
    2: (int, "an integer"),  # INT
    3: (float, "a number"),  # FLOAT
}


_NOTHING: dict[int, Any] = {1: b"", 2: 0, 3: 0.0}  # by schema_pb2.FeatureType


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


def _read_csv(path: Path, columns: _Columns) -> Iterable[tuple[str, Row]]:
    try:
        file = path.open(newline="", encoding="utf-8-sig")
    except OSError as error:
        raise BadInputError(str(error.strerror), place=Place(str(path))) from None
    with file, _readable(path):
        reader = csv.DictReader(file)
        if not reader.fieldnames:
            raise BadInputError(
                "is empty", place=Place(str(path)), expected="a header and rows"
            )
        columns.check_names(f"{path}:1", reader.fieldnames)
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise BadInputError(
                    "has another number of fields than the header, which has "
                    f"{len(reader.fieldnames)}",
                    place=Place(where),
                )
            yield where, row


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise BadInputError(
            f"{path}: is not UTF-8 text. Save the file as UTF-8."
        ) from None
    except csv.Error as error:
        raise BadInputError(f"{path}: is not CSV: {error}.") from None


def _answers(
    folder: Path, rows: Sequence[Mapping[str, list[Any]]]
) -> list[dict[str, Any]]:
    for name, value in TENSORFLOW.items():
        os.environ.setdefault(name, value)
    import tensorflow as tf

    try:
        model = tf.saved_model.load(str(folder))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not load: {error}") from error
    signature = model.signatures[exported.SERVE]
    answers: list[dict[str, Any]] = []
    for start in range(0, len(rows), _BATCH_ROWS):
        batch = [_serialized(row) for row in rows[start : start + _BATCH_ROWS]]
        try:
            outputs = signature(tf.constant(batch))
        except tf.errors.OpError as error:
            reason = operation_error(error.message)
            raise UserError(
                f"{folder}: the model fails on the rows: {reason}"
            ) from error
        listed = {name: value.numpy().tolist() for name, value in outputs.items()}
        answers += [
            {name: _plain(values[i]) for name, values in listed.items()}
            for i in range(len(batch))
        ]
    return answers


def _with_names(answer: dict[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Replaces the list of predictions by a dict from class name to probability.

    Applies to a model with at least as many outputs as classes; the outputs beyond the
    classes are out-of-vocabulary buckets, named by their index.
    """
    values = answer.get("predictions")
    if not classes or not isinstance(values, list) or len(values) < len(classes):
        return answer
    others = map(str, range(len(classes), len(values)))
    named = dict(zip([*classes, *others], values, strict=True))
    return {**answer, "predictions": named}


def _serialized(row: Mapping[str, list[Any]]) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    for name, values in row.items():
        if not values:
            continue
        feature = example.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return example.SerializeToString()


def _plain(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.decode() if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    if isinstance(value, dict):
        likeliest = sorted(value.items(), key=lambda item: -item[1])
        return abridged([f"{name} {_text(p)}" for name, p in likeliest], _CLASSES)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.4f}" if isinstance(value, float) else str(value)

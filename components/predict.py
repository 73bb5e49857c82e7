"""Predicts rows with a pushed model, as a client of a model server would.

A SavedModel from the Trainer describes itself: `assets.extra/` contains the schema of
the raw data, the names of the features that the model needs, and the spellings of a
missing number. Files are read by ExampleGen's own sources and conversion, so a row is
what it would be in training. The module imports TensorFlow, but not TFX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import errors, exported
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.example_gen.values import DEFAULT_NULL_VALUES
from strategos.components.user_code.user_errors import operation_error
from strategos.components.wording import abridged, counted
from strategos.components.worker_process import TENSORFLOW

if TYPE_CHECKING:
    import pyarrow as pa
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.example_gen.columns import Kind
    from strategos.components.example_gen.sources import Source

Row = Mapping[str, str]

STDIN = "-"
"""Stands for standard input in place of a path."""

_BATCH_ROWS = 4096
_CLASSES = 5  # shown per row, the most probable ones


def predict(model_dir: str, rows: str | Path | Sequence[Row]) -> list[dict[str, Any]]:
    """Predicts rows with an exported model.

    Args:
      model_dir: Folder of a SavedModel that the Trainer exported, or a folder of
        numbered versions; the newest version is used.
      rows: Path of a CSV file with a header, or of a Parquet file, read as training
        reads it; `STDIN`, or a pipe, for such a file there. Or rows of text by column
        name. The label, and columns that the model does not use, may be missing. An
        empty field is a missing value.

    Returns:
      One dict per row, from output name to a number or a list of numbers. If the names
      of the classes are known, `predictions` is a dict from name to probability.

    Raises:
      BadInputError: The model or the file is missing or malformed; a column is unknown
        or missing; a value has another type than its column.
      UserError: The model does not load, or fails on these rows.
    """
    folder = _version(Path(model_dir))
    columns = _Columns.of(folder)
    if isinstance(rows, (str, Path)):
        with _on_disk(str(rows)) as path:
            examples = list(_of_file(path, columns))
    else:
        examples = list(_of_texts(rows, columns))
    answers = _answers(folder, examples)
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
      null_values: Spellings of a missing number.
    """

    features: Mapping[str, schema_pb2.Feature]
    used: frozenset[str]
    unused: frozenset[str]
    label: str
    classes: tuple[str, ...]
    null_values: tuple[str, ...]

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
        if "null_values" not in described:
            print(
                "note: the model does not name its data.null_values; the default ones "
                "are missing values here",
                file=sys.stderr,
            )
        return cls(
            features,
            frozenset(used),
            frozenset(unused),
            described["label"],
            tuple(described.get("classes", ())),
            tuple(described.get("null_values", DEFAULT_NULL_VALUES)),
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

    def examples(
        self, batch: pa.RecordBatch, where: Callable[[int], str]
    ) -> list[bytes]:
        """Converts rows to serialized tf.Examples, as ExampleGen does.

        Args:
          batch: Rows as a file has them.
          where: Returns the place of the row with this index in `batch`.

        Raises:
          BadInputError: A value is missing, or is not of its column's type.
        """
        import pyarrow as pa

        from strategos.components.example_gen.values import features, numerals
        from strategos.components.records import encode

        kinds = {name: self._type(name)[1] for name in sorted(self.used)}
        nulls = numerals.Nulls(self.null_values)
        try:
            converted = features.convert(batch, kinds, nulls)
        except features.BadValueError as error:
            raise BadInputError(
                error.reason,
                place=Place(f"{where(error.row)}: column `{error.column}`"),
                received=repr(str(error.value)[:100]),
                expected=self._type(error.column)[0],
            ) from error
        for name in self.needed:
            row = features.first_missing(converted.column(name))
            if row is not None:
                raise BadInputError(
                    "is empty, but the model needs a value",
                    place=Place(f"{where(row)}: column `{name}`"),
                )
        columns = {name: converted.column(name) for name in kinds}
        for name in filter(self._is_required, self.unused):
            columns[name] = self._fillers(name, batch.num_rows)
        return encode.serialize(pa.RecordBatch.from_pydict(columns)).to_pylist()

    def _fillers(self, name: str, rows: int) -> pa.ListArray:
        """Placeholder values for an unused column that the model parses."""
        import pyarrow as pa

        from strategos.components.example_gen.values import features

        shape = self.features[name].shape
        _, kind, nothing = self._type(name)
        values = [nothing] * math.prod(dim.size for dim in shape.dim)
        return pa.array([values] * rows, pa.list_(features.ARROW[kind]))

    def _type(self, name: str) -> tuple[str, Kind, Any]:
        """What a column allows, its kind, and a value that stands for nothing."""
        from strategos.components.example_gen.columns import Kind

        types = {
            1: ("text", Kind.BYTES, b""),
            2: ("an integer", Kind.INT, 0),
            3: ("a number", Kind.FLOAT, 0.0),
        }
        return types[self.features[name].type]


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


@contextlib.contextmanager
def _on_disk(rows: str) -> Iterator[str]:
    """Yields the path of the rows; that of a copy for standard input and for a pipe.

    Raises:
      BadInputError: The rows cannot be read; the message names `rows`, not the copy.
    """
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        path = _copied(rows, folder) if _is_piped(rows) else rows
        try:
            yield path
        except UserError as error:
            described = {**error.to_json(), "type": BadInputError.__name__}
            name = "standard input" if rows == STDIN else rows
            text = json.dumps(described).replace(json.dumps(path)[1:-1], name)
            raise errors.from_json(json.loads(text)) from error


def _is_piped(rows: str) -> bool:
    """Whether rows can be read only once: sources seek, and read again for errors."""
    if rows == STDIN:
        return True
    try:
        return stat.S_ISFIFO(os.stat(rows).st_mode)
    except OSError as error:
        raise BadInputError(str(error.strerror), place=Place(rows)) from error


def _copied(rows: str, folder: str) -> str:
    """Copies standard input or a pipe to a file, whose suffix names its format."""
    from strategos.components.example_gen import formats

    opened = os.dup(0) if rows == STDIN else rows
    with open(opened, "rb") as source, open(f"{folder}/rows", "wb") as copy:
        shutil.copyfileobj(source, copy)
    suffix = formats.suffix(formats.head(f"{folder}/rows"))
    return shutil.move(f"{folder}/rows", f"{folder}/rows{suffix}")


def _source(path: str) -> Source:
    """Opens a file as the format that its name says, else as its first bytes say."""
    from strategos.components.example_gen import formats, sources

    if path.endswith(sources.SUFFIXES):
        return sources.open_source(path)
    wanted = formats.suffix(formats.head(path))
    (kind,) = (each for each in sources.SOURCES if wanted in each.suffixes)
    kind.check(path)
    return kind(path)


def _of_file(path: str, columns: _Columns) -> Iterator[bytes]:
    """Yields the rows of a file as serialized tf.Examples."""
    from strategos.components.example_gen.sources.source import WHOLE

    source, first = _source(path), 0
    columns.check_names(path, source.names)

    def where(row: int) -> str:
        return f"{path}: {source.where(WHOLE, first + row)}"

    for batch in source.batches():
        yield from columns.examples(batch, where)
        first += batch.num_rows


def _of_texts(rows: Sequence[Row], columns: _Columns) -> Sequence[bytes]:
    """The rows as serialized tf.Examples; "" is a missing value."""
    import pyarrow as pa

    for number, row in enumerate(rows, start=1):
        columns.check_names(f"row {number}", row)
    texts = {
        name: pa.array([row.get(name) or None for row in rows], pa.string())
        for name in sorted(columns.used)
    }
    batch = pa.RecordBatch.from_pydict(texts)
    return columns.examples(batch, lambda row: f"row {row + 1}")


def _answers(folder: Path, examples: Sequence[bytes]) -> list[dict[str, Any]]:
    for name, value in TENSORFLOW.items():
        os.environ.setdefault(name, value)
    import tensorflow as tf

    try:
        model = tf.saved_model.load(str(folder))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not load: {error}") from error
    signature = model.signatures[exported.SERVE]
    answers: list[dict[str, Any]] = []
    for start in range(0, len(examples), _BATCH_ROWS):
        batch = examples[start : start + _BATCH_ROWS]
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

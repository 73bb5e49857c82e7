"""Predicts the rows of one shard of the data, into one file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from strategos.components.data_files.findings.rejected import Rejected, convertible_rows
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.values.features import BadValueError
from strategos.components.errors import Place, UserError
from strategos.components.files import exchange, storage
from strategos.components.predict.batch import copied
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.predict.batch.formats import FORMATS
from strategos.components.predict.batch.outputs import Output
from strategos.components.predict.model import Model, ModelFailsError
from strategos.components.predict.rows import Columns
from strategos.components.shards import progress

_BATCH_BYTES = 32 << 20  # of rows as the file has them


@dataclasses.dataclass
class Predicted:
    """Counts of the shards predicted so far.

    Attributes:
      files: Number of rows of each file, in order.
      rejected: The rows that cannot be read.
      names: The columns of files that declare none.
    """

    files: list[int]
    rejected: Rejected
    names: frozenset[str] = frozenset()

    def merge(self, later: Predicted) -> Predicted:
        """Adds the counts of later shards."""
        files, rejected = self.files + later.files, self.rejected.merge(later.rejected)
        return Predicted(files, rejected, self.names | later.names)


@dataclasses.dataclass(frozen=True)
class PredictShard:
    """Predicts the rows of a shard.

    Attributes:
      model: The SavedModel, from `exchange.sent`.
      columns: The columns of the model.
      outputs: The outputs of the model.
      copied: Type of each column that is copied.
      format: A name in `FORMATS`.
      batch_size: Rows that the model predicts at once, at most.
      folder: Gets the file.
    """

    model: str
    columns: Columns
    outputs: Sequence[Output]
    copied: Mapping[str, pa.DataType]
    format: str
    batch_size: int
    folder: OutputFolder

    @property
    def schema(self) -> pa.Schema:
        """The columns of the predictions."""
        fields = [pa.field(name, each) for name, each in self.copied.items()]
        return pa.schema([*fields, *(pa.field(x.name, x.type) for x in self.outputs)])

    def __call__(self, shard: Shard) -> Predicted:
        """Predicts a shard, unless its file is complete.

        Raises:
          UserError: A value is missing or of another type than its column, a file is
            malformed, or the model fails.
        """
        if (known := self.folder.record(shard.number)) is not None:
            progress.add(known["rows"])
            rejected = Rejected(*known["rejected"])
            return Predicted([known["rows"]], rejected, frozenset(known["names"]))
        rows, rejected, names = 0, Rejected(), set[str]()
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(storage.create(self.folder.part(shard.number)))
            writer = FORMATS[self.format](file, self.schema)
            out = opened.enter_context(contextlib.closing(writer))
            for piece in map(Piece.fresh, shard.pieces):
                for row, raw in self._rows(piece, rejected):
                    if piece.source.open_ended:
                        names.update(filter(None, raw.schema.names))
                    for batch in self._predicted(piece, row, raw, rejected):
                        out.write(batch)
                        rows += batch.num_rows
                    progress.add(raw.num_rows)
                rejected.end(piece)
        rejected.write(self.folder.staging, shard.number)
        counts = rejected.rows, rejected.malformed, rejected.first
        about = {"rows": rows, "rejected": counts, "names": sorted(names)}
        self.folder.complete(shard.number, about)
        return Predicted([rows], rejected, frozenset(names))

    def _rows(
        self, piece: Piece, rejected: Rejected
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields rows that can be converted, with the index of the first."""

        def explain(error: BadValueError, row: int) -> UserError:
            return self.columns.problem(error, piece.place(row + error.row))

        convert, has = self.columns.serialized, piece.source.names
        read = self.columns.used | {*self.copied}
        # At least one column: without any, Arrow does not tell the number of rows.
        wanted = [name for name in has if name in read] or has[:1]
        return convertible_rows(piece, convert, explain, rejected, wanted)

    def _predicted(
        self, piece: Piece, row: int, raw: pa.RecordBatch, rejected: Rejected
    ) -> Iterator[pa.RecordBatch]:
        """Yields the predictions of rows, some at a time."""
        try:
            examples = self.columns.serialized(raw).to_numpy()
        except BadValueError as error:
            place = piece.place(row + error.row)
            raise self.columns.problem(error, place) from error
        fitting = _BATCH_BYTES * raw.num_rows // max(raw.nbytes, 1)
        size = max(1, min(self.batch_size, fitting))
        for first in range(0, raw.num_rows, size):
            some, inputs = raw.slice(first, size), examples[first : first + size]
            yield from self._answered(piece, row + first, some, inputs, rejected)

    def _answered(
        self,
        piece: Piece,
        row: int,
        raw: pa.RecordBatch,
        examples: np.ndarray,
        rejected: Rejected,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the predictions of a batch; halves it if the model fails on it."""
        try:
            values = _models.get(self.model).arrays(examples)
        except ModelFailsError as error:
            if raw.num_rows == 1:
                reason = f"the model fails on the row: {error}"
                if not piece.source.tolerant:
                    raise UserError(reason, place=Place(piece.place(row))) from error
                rejected.add_row(piece, row, raw, reason)
                return
            half = raw.num_rows // 2
            for part in (slice(0, half), slice(half, raw.num_rows)):
                some = raw.slice(part.start, part.stop - part.start)
                first = row + part.start
                yield from self._answered(piece, first, some, examples[part], rejected)
            return
        for name, array in values.items():
            if len(array) != raw.num_rows:
                raise UserError(
                    f"{self.model}: the output `{name}` has {len(array)} values for "
                    f"{raw.num_rows} rows"
                )
        columns = [copied.cast(piece, raw, *each) for each in self.copied.items()]
        columns += [each.column(values[each.name]) for each in self.outputs]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


class _LoadedModels:
    """The model of a command, which a process loads once for all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._load = functools.lru_cache(maxsize=1)(_loaded)

    def get(self, model: str) -> Model:
        """The model; loads it unless it is the last used one."""
        with self._lock:
            return self._load(model)


def _loaded(model: str) -> Model:
    return Model(Path(exchange.local(model)))


_models = _LoadedModels()

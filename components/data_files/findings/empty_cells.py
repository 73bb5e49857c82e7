"""Counts the rows of a split without a value, by column."""

from __future__ import annotations

import pyarrow as pa

from strategos.components.data_files.pieces import Piece
from strategos.components.data_files.values import features
from strategos.components.records.emptiness import SHOWN, Emptiness

_RECORDED = 200  # columns: databases of ML Metadata hold 64 kB of text


class EmptyCells:
    """Counts the rows without a value, by column; a place is looked up when asked."""

    def __init__(self) -> None:
        self._rows = 0
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[Piece, int]] = {}

    def see(self, batch: pa.RecordBatch, piece: Piece, row: int) -> None:
        """Adds rows of a piece.

        Args:
          batch: Features of the rows, a list a row: null or without items if missing.
          piece: The piece that the rows are from.
          row: Index in the piece of the first row.
        """
        self._rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            missing = features.is_missing(column)
            count = int(missing.sum())
            if count:
                self._counts[name] = self._counts.get(name, 0) + count
                self._first.setdefault(name, (piece, row + int(missing.argmax())))

    def merge(self, later: EmptyCells) -> EmptyCells:
        """Adds the counts of later rows."""
        self._rows += later._rows
        for name, count in later._counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self._first = {**later._first, **self._first}
        return self

    def found(self) -> dict[str, Emptiness]:
        """Empty cells by column, the column with the fewest first.

        At most `_RECORDED` columns. The place of an empty cell is looked up for the
        first `SHOWN` columns, which reads a file up to the place.
        """
        names = sorted(self._counts, key=self._counts.__getitem__)[:_RECORDED]
        return {
            name: Emptiness(
                self._counts[name],
                self._rows,
                self._place(name) if number < SHOWN else "",
            )
            for number, name in enumerate(names)
        }

    def _place(self, name: str) -> str:
        piece, row = self._first[name]
        return piece.place(row)

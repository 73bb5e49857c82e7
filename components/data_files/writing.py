"""Writes the examples of one shard of the data, in their splits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files.columns import check_known
from strategos.components.data_files.findings.duplicates import RowHashes
from strategos.components.data_files.findings.empty_cells import EmptyCells
from strategos.components.data_files.findings.rejected import Rejected, accepted_rows
from strategos.components.data_files.inference import Witness
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.splitting import Splitter
from strategos.components.data_files.values import features, numerals, rounding
from strategos.components.data_files.values.bad_values import bad_value, explained
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.values.times import EXPECTED
from strategos.components.errors import UserError
from strategos.components.records import columns, encode, splits
from strategos.components.records.splits import WrittenSplit
from strategos.components.shards import progress
from strategos.components.targets.label import Label
from strategos.components.wording import abridged

_SHOWN_NAMES = 8
_FOLLOWED = 500  # distinct values of the label in a split


@dataclasses.dataclass
class LabelValues:
    """Some values of a label's column, to reject a constant one and find unseen values.

    Attributes:
      seen: Some values; all of them if all are equal.
      rows: Number of rows.
      plain: Whether no row has more than one value.
      first: By split, the piece and row where each value of a text or whole number
        stands first; None if there are more than some hundreds.
    """

    seen: set[Any] = dataclasses.field(default_factory=set)
    rows: int = 0
    plain: bool = True
    first: dict[str, dict[Any, tuple[Piece, int]]] | None = dataclasses.field(
        default_factory=dict
    )

    def see(
        self,
        column: pa.ListArray,
        masks: Mapping[str, np.ndarray],
        piece: Piece,
        row: int,
    ) -> None:
        """Adds a batch of the label's column.

        Args:
          column: The values, a list a row.
          masks: bool [rows] by split.
          piece: The piece that the rows are from.
          row: Index in the piece of the first row.
        """
        if (pc.max(pc.list_value_length(column)).as_py() or 0) > 1:
            self.plain = False
        self.rows += len(column)
        if len(self.seen) < 2:
            self.seen.update(column.flatten().unique()[:2].to_pylist())
        if self.first is None or pa.types.is_floating(column.type.value_type):
            return
        rows = pc.list_parent_indices(column)
        for split, mask in masks.items():
            own = pa.array(mask).take(rows)
            values, known = (
                column.flatten().filter(own),
                self.first.setdefault(split, {}),
            )
            for value in values.unique()[: _FOLLOWED + 1].to_pylist():
                if value not in known:
                    index = rows.filter(own)[pc.index(values, value).as_py()].as_py()
                    known[value] = piece, row + index
        self._forget_many()

    def merge(self, later: LabelValues) -> LabelValues:
        """Adds the values of later rows."""
        seen = self.seen if len(self.seen) > 1 else self.seen | later.seen
        first = None
        if self.first is not None and later.first is not None:
            first = {
                split: {**later.first.get(split, {}), **self.first.get(split, {})}
                for split in self.first.keys() | later.first.keys()
            }
        rows, plain = self.rows + later.rows, self.plain and later.plain
        merged = LabelValues(seen, rows, plain, first)
        merged._forget_many()
        return merged

    def unseen(self) -> dict[str, str]:
        """By split, a value that no row of `train` has, with its file and line."""
        known = (self.first or {}).get("train", {})
        places = {}
        for split, values in (self.first or {}).items():
            for value, (piece, row) in values.items():
                if value not in known:
                    places[split] = f"{_shown(value)} ({piece.place(row)})"
                    break
        return places

    @property
    def varies(self) -> bool:
        """Whether the column has two values or more."""
        return not self.plain or len(self.seen) > 1

    def check(self, name: str) -> None:
        """Rejects a column that a model could learn nothing from.

        Raises:
          UserError: All rows have the same value, or none.
        """
        if self.varies:
            return
        value = _shown(next(iter(self.seen), "missing"))
        raise UserError(
            f"`{name}` is {value} in {_all(self.rows)}; a model cannot learn from it",
            key="label",
            remedy="Check how the column is made, or choose another one or more spans.",
        )

    def _forget_many(self) -> None:
        if any(len(values) > _FOLLOWED for values in (self.first or {}).values()):
            self.first = None


@dataclasses.dataclass
class Outcome:
    """Counts and findings of the shards written so far.

    Attributes:
      rows: Number of rows read.
      splits: The tf.Examples and the columns that were written, by split.
      labels: The values of the label's columns, by name.
      rounded: By column, a sentence about the first number with another whole part in
        float32.
      shortened: By column, the first number that loses digits in float32, and its
        place.
      hashes: Hashes of the rows, to find rows that are in several splits.
      empty: The rows without a value, by column.
      rejected: The rows that cannot be read.
      unlabelled: Number of rows that were left out, because their label is missing.
    """

    rows: int
    splits: dict[str, WrittenSplit]
    labels: dict[str, LabelValues]
    rounded: dict[str, str]
    shortened: dict[str, str]
    hashes: RowHashes
    empty: EmptyCells
    rejected: Rejected
    unlabelled: int = 0

    def merge(self, later: Outcome) -> Outcome:
        """Adds the outcome of later shards."""
        self.rows += later.rows
        self.unlabelled += later.unlabelled
        for split, written in later.splits.items():
            self.splits[split] = splits.merged(self.splits[split], written)
        pairs = self.labels.items()
        self.labels = {name: own.merge(later.labels[name]) for name, own in pairs}
        self.hashes = self.hashes.merge(later.hashes)
        self.empty = self.empty.merge(later.empty)
        self.rejected = self.rejected.merge(later.rejected)
        self.rounded = {**later.rounded, **self.rounded}
        self.shortened = {**later.shortened, **self.shortened}
        return self

    def unseen_labels(self) -> dict[str, str]:
        """`LabelValues.unseen` of a label of one column; {} for several."""
        values = [*self.labels.values()]
        return values[0].unseen() if len(values) == 1 else {}

    def check_labels(self) -> None:
        """Rejects a label if a model could learn nothing from any of its columns.

        Raises:
          UserError: Each column has the same value in all rows, or none.
        """
        if not any(values.varies for values in self.labels.values()):
            for name, values in self.labels.items():
                values.check(name)

    def changed_numbers(self) -> list[str]:
        """The numbers that float32 changes, by column, for the run's report."""
        names = [name for name in self.shortened if name not in self.rounded]
        shown = [f"`{name}` ({self.shortened[name]})" for name in names[:1]]
        shown += [f"`{name}`" for name in names[1:]]
        lines = list(self.rounded.values())
        if names:
            columns = abridged(shown, _SHOWN_NAMES)
            lines.append(f"FLOAT keeps about 7 digits; rounded: {columns}")
        return lines

    def publish(self, examples: str) -> None:
        """Gives all files their final names.

        Args:
          examples: URI of the artifact.
        """
        splits.publish(examples, self.splits)


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Converts, splits, encodes and writes the rows of a shard.

    Attributes:
      examples: URI of the artifact.
      kinds: Kind of each column.
      floats: By column inferred as FLOAT, the first value that is no INT.
      nulls: Spellings of a missing value in columns of numbers.
      splitter: Divides the rows.
      label: The label, as `Label.text`; ignored if it is no column.
      lists: Names of the columns that may have several values in a row.
      drops_unlabelled: Whether rows without a value of the label are left out.
    """

    examples: str
    kinds: Mapping[str, Kind]
    floats: Mapping[str, Witness]
    nulls: numerals.Nulls
    splitter: Splitter
    label: str
    lists: frozenset[str]
    drops_unlabelled: bool = False

    def __call__(self, shard: Shard) -> Outcome:
        """Writes a shard.

        Raises:
          UserError: A value is not of its column's kind, or a file is malformed.
        """
        labels = {name: LabelValues() for name in self._labels}
        hashes = RowHashes(self.splitter.splits)
        empty, rejected, rows, read = EmptyCells(), Rejected(), 0, 0
        rounded: dict[str, str] = {}
        shortened: dict[str, str] = {}
        writers = {
            split: splits.SplitWriter(self.examples, shard.number)
            for split in self.splitter.splits
        }
        for piece in map(Piece.fresh, shard.pieces):
            read = 0
            for read, raw, batch in self._batches(piece, rounded, shortened, rejected):
                empty.see(batch, piece, read)
                with explained(piece.place, read, EXPECTED):
                    masks = self._masks(piece, read, raw)
                for name, values in labels.items():
                    values.see(batch.column(name), masks, piece, read)
                batch, masks = self._labelled(batch, masks)
                records = encode.serialize(batch)
                if not self.splitter.keys:  # else equal rows have equal keys
                    hashes.add(records, masks)
                compact = columns.compact(batch, self.lists)
                for split, mask in masks.items():
                    own = pa.array(mask)
                    writers[split].write(records.filter(own), compact.filter(own))
                rows += raw.num_rows
                progress.add(raw.num_rows)
            rejected.end(piece)
        parsed = rows + rejected.rows - rejected.malformed
        known = [piece.rows for piece in shard.pieces]
        if None not in known and sum(filter(None, known)) != parsed:
            raise RuntimeError(f"shard {shard.number}: read {parsed} of {known} rows")
        rejected.write(self.examples, shard.number)
        written = {split: writer.close() for split, writer in writers.items()}
        hashes.compact()  # here and not where all are merged, one after another
        unlabelled = rows - sum(records.rows for records, _ in written.values())
        if unlabelled and not self.drops_unlabelled:
            raise RuntimeError(f"shard {shard.number}: read {rows} rows: {written}")
        return Outcome(
            rows,
            written,
            labels,
            rounded,
            shortened,
            hashes,
            empty,
            rejected,
            unlabelled,
        )

    def _masks(
        self, piece: Piece, row: int, raw: pa.RecordBatch
    ) -> dict[str, np.ndarray]:
        """bool[rows] by split of rows of a piece, `row` the index of the first."""
        masks = functools.partial(
            self.splitter.masks, span=piece.span, kinds=self.kinds, nulls=self.nulls
        )
        if not self.splitter.by_position:
            return masks(raw, file="", row=0)
        start, parts = 0, []
        for file, first, rows in piece.stretches(row, raw.num_rows):
            parts.append(masks(raw.slice(start, rows), file=file, row=first))
            start += rows
        return {
            split: np.concatenate([part[split] for part in parts])
            for split in self.splitter.splits
        }

    @property
    def _labels(self) -> list[str]:
        """The columns of the label, but for those that `preprocessing_fn` makes."""
        return [name for name in Label.of(self.label).withheld if name in self.kinds]

    def _labelled(
        self, batch: pa.RecordBatch, masks: dict[str, np.ndarray]
    ) -> tuple[pa.RecordBatch, dict[str, np.ndarray]]:
        """The rows to write, and their mask by split."""
        missing = np.zeros(batch.num_rows, bool)
        for name in self._labels if self.drops_unlabelled else ():
            missing |= features.is_missing(batch.column(name))
        if not missing.any():
            return batch, masks
        kept = {split: mask[~missing] for split, mask in masks.items()}
        return batch.filter(pa.array(~missing)), kept

    def _batches(
        self,
        piece: Piece,
        rounded: dict[str, str],
        shortened: dict[str, str],
        rejected: Rejected,
    ) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
        """Yields rows, as the file has them and converted, with their first index."""
        floats = {name for name, kind in self.kinds.items() if kind == Kind.FLOAT}
        for row, raw in accepted_rows(piece, self.kinds, self.nulls, rejected):
            inferred = self.floats.keys() - shortened.keys()
            watch = rounding.RoundingWatch(floats - rounded.keys(), inferred)
            batch = converted(piece, row, raw, self.kinds, self.nulls, watch)
            for name, (index, value) in watch.changed.items():
                rounded[name] = self._rounded(name, value, piece.place(row + index))
            for name, (index, value) in watch.shortened.items():
                shortened[name] = f"{value[:100]}, {piece.place(row + index)}"
            yield row, raw, batch

    def _rounded(self, name: str, value: str, place: str) -> str:
        because = "the schema says so"
        remedy = "Declare INT or BYTES to keep all digits."
        if name in self.floats:
            because = f"of {self.floats[name]}"
            remedy = "Correct it, or declare the type in a schema."
        return (
            f"`{name}` is FLOAT because {because}; float32 cannot represent "
            f"{value[:100]} ({place}), so its value changes. {remedy}"
        )


def converted(
    piece: Piece,
    row: int,
    batch: pa.RecordBatch,
    kinds: Mapping[str, Kind],
    nulls: numerals.Nulls,
    watch: rounding.RoundingWatch | None = None,
) -> pa.RecordBatch:
    """Converts rows of a piece to the features of tf.Examples.

    Args:
      piece: The piece, for messages.
      row: Index in the piece of the first of these rows.
      batch: Rows as the file has them.
      kinds: Kind of each column.
      nulls: Spellings of a missing value in columns of numbers.
      watch: Looks for numbers that float32 changes.

    Raises:
      UserError: A value is not of its column's kind, or no kind is known for a column.
    """
    if piece.source.open_ended and not piece.source.ignores_extra:
        check_known(batch.schema.names, kinds, f"{piece.place(row)} or later")
    try:
        return features.convert(batch, kinds, nulls, watch)
    except features.BadValueError as error:
        raise bad_value(piece.place, row, error, kinds[error.column]) from error


def _all(rows: int) -> str:
    return f"all {rows} rows" if rows > 1 else "the only row"


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace")[:100])
    return str(value)

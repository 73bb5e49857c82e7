"""Rows of queries in Arrow files; numpy and Arrow only.

The rows of a query may lie in any shards. So workers write the columns that metrics
need to files, in the order of 64 random bits that stand for a row's query, and the rows
of a range of these bits are later read from all files: some queries at a time, whole.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.metrics import Columns
from strategos.components.evaluation.slices.slicing import canonical
from strategos.components.files import storage

_ROWS_OF_FILE = 1 << 18
_ROWS, _MEMBERS = "rows", "slices"
_QUERY, _LABEL, _WEIGHT, _SLICE = "query", "label", "weight", "slice"
_SCORE = "score of "  # a model
_NO_MEMBERS = {name: np.zeros(0, np.uint64) for name in (_QUERY, _SLICE)}


class Writer:
    """Writes rows to files of a folder.

    Args:
      folder: A path, or a URL.

    Attributes:
      files: The files, without their endings; all of them after `flush`.
      without_query: Number of rows without a query, which are not ranked.
    """

    def __init__(self, folder: str):
        self.files: list[str] = []
        self.without_query = 0
        self._folder = folder
        self._rows: list[dict[str, np.ndarray]] = []
        self._members = [_NO_MEMBERS]
        self._waiting = 0

    def add(
        self,
        query: np.ndarray,
        known: np.ndarray,
        label: np.ndarray,
        scores: Mapping[str, Columns],
        slices: Mapping[str, SliceMembership],
        weight: np.ndarray | None,
    ) -> None:
        """Adds rows, but for those without a query or of weight 0.

        Args:
          query: uint64 [rows], random bits; equal for rows of one query.
          known: bool [rows], whether a row has a query.
          label: float64 [rows].
          scores: Columns of scores by model.
          slices: The rows of each slice, by name of the slicing.
          weight: float64 [rows]; None for 1.

        Raises:
          OSError: A file cannot be written.
        """
        kept = known if weight is None else known & (weight > 0)
        self.without_query += int((~known).sum())
        columns = {_QUERY: query, _LABEL: label}
        if weight is not None:
            columns[_WEIGHT] = weight
        for model, each in scores.items():
            columns[_SCORE + model] = each["prediction"]
        self._rows.append({name: column[kept] for name, column in columns.items()})
        for name, member in slices.items():
            keys = np.array([_key(name, value) for value in member.values], np.uint64)
            some = kept[member.row]
            rows, codes = member.row[some], member.code[some]
            self._members.append({_QUERY: query[rows], _SLICE: keys[codes]})
        self._waiting += len(label)
        if self._waiting >= _ROWS_OF_FILE:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that wait.

        Raises:
          OSError: A file cannot be written.
        """
        if not self._waiting:
            return
        file = f"{self._folder}/{uuid.uuid4().hex}"
        _write(f"{file}.{_ROWS}", _sorted(_joined(self._rows), _QUERY))
        _write(f"{file}.{_MEMBERS}", _distinct(_joined(self._members)))
        self.files.append(file)
        self._rows, self._members, self._waiting = [], [_NO_MEMBERS], 0


@dataclass(frozen=True)
class Part:
    """The rows of some queries, all of each.

    Attributes:
      query: uint64 [rows], ascending.
      label: float64 [rows].
      weight: float64 [rows].
      scores: float64 [rows] by model.
      members: uint64 [pairs], the query of each distinct pair of a query and a slice
        that has one of its rows.
      slices: uint64 [pairs], the slice of each pair; see `keys`.
    """

    query: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    scores: Mapping[str, np.ndarray]
    members: np.ndarray
    slices: np.ndarray


def read(files: Sequence[str], models: Iterable[str], part: int, parts: int) -> Part:
    """Reads the rows of one of several equal ranges of the bits of queries.

    Args:
      files: Local files, from a `Writer`.
      models: Models that have scores in all files.
      part: Number of the range.
      parts: Number of ranges.
    """
    ends = [(i << 64) // parts for i in (part, part + 1)]
    rows = _sorted(_joined([_range(f"{x}.{_ROWS}", ends) for x in files]), _QUERY)
    pairs = _distinct(_joined([_range(f"{x}.{_MEMBERS}", ends) for x in files]))
    return Part(
        query=rows[_QUERY],
        label=rows[_LABEL],
        weight=rows.get(_WEIGHT, np.ones(len(rows[_QUERY]))),
        scores={model: rows[_SCORE + model] for model in models},
        members=pairs[_QUERY],
        slices=pairs[_SLICE],
    )


def keys(codes: Mapping[str | None, Mapping[Any, int]]) -> dict[str, np.ndarray]:
    """The key of each slice in files; uint64 [slices] by feature, by its index.

    Args:
      codes: The index of each slice by its value, by feature.
    """
    return {
        feature: np.array([_key(feature, value) for value in values], np.uint64)
        for feature, values in codes.items()
        if feature
    }


def _key(feature: str, value: Any) -> int:
    """64 random bits that stand for a slice, the same in all processes."""
    text = repr((feature, canonical(value))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The columns that all parts have."""
    names = [x for x in parts[0] if all(x in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _sorted(columns: Mapping[str, np.ndarray], *by: str) -> dict[str, np.ndarray]:
    order = np.lexsort([columns[name] for name in reversed(by)])
    return {name: column[order] for name, column in columns.items()}


def _distinct(members: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each pair of a query and a slice once, by query."""
    pairs = _sorted(members, _QUERY, _SLICE)
    new = np.ones(len(pairs[_QUERY]), bool)
    new[1:] = np.any([each[1:] != each[:-1] for each in pairs.values()], axis=0)
    return {name: column[new] for name, column in pairs.items()}


def _write(path: str, columns: Mapping[str, np.ndarray]) -> None:
    batch = pa.RecordBatch.from_pydict({k: pa.array(v) for k, v in columns.items()})
    with storage.create(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _range(path: str, ends: Sequence[int]) -> dict[str, np.ndarray]:
    """The rows of a range of queries in a file, in pages that the system may drop.

    Args:
      path: A local file.
      ends: The first query of the range, and the first one behind it.
    """
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
        batch = reader.get_batch(0)
        query = batch.column(_QUERY).to_numpy()
        last = np.uint64(ends[1] - 1)
        start = np.searchsorted(query, np.uint64(ends[0]))
        end = np.searchsorted(query, last, side="right")
        some = batch.slice(start, end - start)
        return {name: some.column(name).to_numpy().copy() for name in some.schema.names}

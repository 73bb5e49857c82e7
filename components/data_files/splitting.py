"""Splits rows into train, validation and eval: by key columns, position, or span.

**By hash**: rows with equal keys are in the same split, in every run, whatever other
rows the data contain. The key is the text of the values of the key columns (missing:
empty), joined by the byte 0x1F; a value has the same text however the file spells it
and whatever type its column has (`spelling.key_of`). A row is in `train` if the first
eight bytes of the key's SHA-256, as a big-endian fraction of 2**64, are below
`train / (train + eval)`, e.g. below 0.8 for 8 : 2.

**By ratio**: the fraction is a mix (SplitMix64) of the span's number, the file's path
below the folder that the pattern begins with, and the row's position in the file. No
other file or span moves a row to another split.

**By span**: all rows of the newest spans of the run are in `eval`.

**By time**: the rows from a time on are in `eval`; the time is a date, or so many
seconds before the newest time of all rows.

**Validation** takes rows of `train` only, so that the rows of `eval` are the same with
and without it: by hash and ratio, rows with a fraction of at least
`(train - validation) / (train + eval)`; by span, the rows of the newest spans before
the spans in `eval`; by time, the newest rows before those in `eval`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from strategos.components.data_files.values import features, numerals, spelling
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.values.times import Times
from strategos.components.errors import UserError
from strategos.components.wording import choices, did_you_mean

_SEPARATOR = b"\x1f"


@dataclasses.dataclass(frozen=True)
class Splitter:
    """How rows are split.

    Attributes:
      keys: The columns to hash; empty: by ratio or by span.
      train: The share of the training split, relative to `train + eval`.
      eval: The share of the evaluation split, relative to `train + eval`.
      held_out: The numbers of the spans in the evaluation split; None: not by span.
      validation: The part of `train` for validation; by span, the number of spans.
      validating: The numbers of the spans in the validation split.
      times: The division by time; None: not by time.
    """

    keys: tuple[str, ...]
    train: float
    eval: float
    held_out: frozenset[int] | None = None
    validation: float = 0
    validating: frozenset[int] = frozenset()
    times: Times | None = None

    @classmethod
    def from_json(cls, text: str, spans: Sequence[int]) -> Splitter:
        """Parses the setting `data.split`.

        Args:
          text: `{"by": "hash"|"ratio", "keys": […], "train": 8, "eval": 2}`, or
            `{"by": "span", "spans": 1, …}`, or `{"by": "time", "column": "day", "eval":
            2592000}` (seconds, or a date); each with `"validation": 1`, too.
          spans: The numbers of the run's spans.
        """
        settings = json.loads(text)
        keys = settings["keys"] if settings["by"] == "hash" else []
        validation = settings.get("validation") or 0
        if settings["by"] == "time":
            times = Times(settings["column"], settings["eval"], validation or None)
            return cls((), 1, 1, validation=bool(validation), times=times)
        held_out, validating = None, frozenset[int]()
        if settings["by"] == "span":
            newest, evaluating = sorted(spans, reverse=True), settings["spans"]
            held_out = frozenset(newest[:evaluating])
            validating = frozenset(newest[evaluating : evaluating + validation])
        train, evaluation = settings["train"], settings["eval"]
        return cls(tuple(keys), train, evaluation, held_out, validation, validating)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return ("train", "validation", "eval") if self.validation else ("train", "eval")

    @property
    def by_position(self) -> bool:
        """Whether the split of a row depends on its position in the file."""
        return not self.keys and self.held_out is None and self.times is None

    @property
    def described(self) -> str:
        """How rows are divided, for messages."""
        if self.held_out is not None:
            validating = f"; validation: {_numbers(self.validating)}"
            return (
                f"span (held out: {_numbers(self.held_out)}"
                f"{validating * bool(self.validation)})"
            )
        if self.times is not None:
            return self.times.described
        by = f"the keys {', '.join(self.keys)}" if self.keys else "ratio"
        text = f", {self.validation} of {self.train} for validation"
        return f"{by}, {self.train} : {self.eval}{text * bool(self.validation)}"

    def check(self, path: str, names: tuple[str, ...]) -> None:
        """Rejects a file that lacks a key column.

        Args:
          path: The file, for the message.
          names: The columns of the file.

        Raises:
          UserError: A key is not among `names`.
        """
        wanted = [("keys", key) for key in self.keys]
        if self.times is not None:
            wanted.append(("column", self.times.column))
        for setting, key in wanted:
            if key not in names:
                raise UserError(
                    f"{path} has no such column",
                    key=f"data.split.{setting}",
                    received=f"`{key}`",
                    expected=choices(names),
                    remedy=did_you_mean(key, names),
                )

    def masks(
        self,
        batch: pa.RecordBatch,
        span: int,
        file: str,
        row: int,
        kinds: Mapping[str, Kind] | None = None,
        nulls: numerals.Nulls = numerals.ONLY_EMPTY,
    ) -> dict[str, np.ndarray]:
        """Which rows of `batch` are in each split.

        Args:
          batch: Rows as the file has them.
          span: Number of the span of these rows.
          file: Path of their file, below the folder that the pattern begins with.
          row: Index of the first of these rows in the file.
          kinds: Kind of each key column. Default: the kind of its Arrow type.
          nulls: Spellings of a missing value in columns of numbers. Default: only
            empty fields.

        Returns:
          bool[rows] by split; a row is in exactly one.

        Raises:
          UserError: A key column has lists.
          BadValueError: A row has no time, or one that is no time.
        """
        if self.times is not None:
            return self._masks(*self.times.masks(batch))
        if self.held_out is not None:
            in_eval = np.full(batch.num_rows, span in self.held_out)
            return self._masks(in_eval, np.full_like(in_eval, span in self.validating))
        if self.keys:
            arguments = kinds, nulls, "data.split.keys"
            hashes = _hash_keys([key_in(batch, name, *arguments) for name in self.keys])
        else:
            hashes = _hash_positions(span, file, row, batch.num_rows)
        fractions, whole = hashes / 2.0**64, self.train + self.eval
        return self._masks(
            fractions >= self.train / whole,
            fractions >= (self.train - self.validation) / whole,
        )

    def _masks(
        self, in_eval: np.ndarray, held_back: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The masks of the splits; validation takes rows held back and not in eval."""
        masks = {
            "train": ~(in_eval | held_back),
            "validation": held_back & ~in_eval,
            "eval": in_eval,
        }
        return {split: masks[split] for split in self.splits}


def key_in(
    batch: pa.RecordBatch,
    name: str,
    kinds: Mapping[str, Kind] | None,
    nulls: numerals.Nulls,
    setting: str,
) -> pa.BinaryArray:
    """The part of the rows' keys that a column has, by `spelling.key_of`.

    Args:
      batch: Rows as the file has them, which may lack the column.
      name: The column.
      kinds: Kind of each column; None: the kind of its Arrow type.
      nulls: Spellings of a missing value in columns of numbers.
      setting: The setting that names the column, for the message.

    Returns:
      binary[rows], null where the value is missing.

    Raises:
      UserError: The column has lists.
    """
    index = batch.schema.get_field_index(name)
    missing = pa.nulls(batch.num_rows, pa.string())
    column = missing if index < 0 else batch.column(index)
    if types.is_nested(column.type):
        raise UserError(
            "a key has one value per row",
            key=setting,
            received=f"`{name}`, a column of type {column.type}",
            remedy="Choose other columns.",
        )
    kind = kinds[name] if kinds else features.kind_of(column.type)
    return spelling.key_of(column, kind, nulls)


def _numbers(spans: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(spans)))


def _hash_keys(keys: list[pa.BinaryArray]) -> np.ndarray:
    joined = pc.binary_join_element_wise(
        *keys,
        _SEPARATOR,
        null_handling="replace",
        null_replacement=b"",
    ).dictionary_encode()
    keys = joined.dictionary.to_numpy(zero_copy_only=False)  # faster than a list
    hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in keys)
    return np.frombuffer(hashes, ">u8")[joined.indices.to_numpy()].astype(np.uint64)


def _hash_positions(span: int, file: str, row: int, rows: int) -> np.ndarray:
    key = f"{span}".encode() + _SEPARATOR + file.encode("utf-8", "surrogateescape")
    seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
    with np.errstate(over="ignore"):
        mixed = np.arange(row + 1, row + rows + 1, dtype=np.uint64)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

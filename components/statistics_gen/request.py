"""The request of a StatisticsGen: slices, weights of rows, and a sample of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_metadata.proto.v0 import statistics_pb2

from strategos.components.errors import UserError
from strategos.components.evaluation.slices.slicing import Slicing
from strategos.components.statistics import generators
from strategos.components.statistics.generators import Batch, Part
from strategos.components.statistics_gen import slices
from strategos.components.statistics_gen.slices import SliceKey

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


@dataclass(frozen=True)
class Request:
    """Slices, weights and sample of the statistics.

    Attributes:
      slices: The slicings.
      weight: The feature that weights the rows; "" for none.
      sample: Share of the rows that are read, each drawn by itself.
    """

    slices: tuple[Slicing, ...] = ()
    weight: str = ""
    sample: float = 1.0

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Request:
        """The request of a node.

        Args:
          parameters: Of the node; StatisticsGen has none of the request's.
        """
        settings = json.loads(parameters.get("request") or "{}")
        slicings = dict.fromkeys(map(Slicing.of, settings.get("slices") or ()))
        weight, sample = settings.get("weight", ""), settings.get("sample", 1.0)
        return cls(tuple(slicings), weight, sample)

    def accumulated(
        self, batches: Iterable[Batch], split: str, shard: int
    ) -> SliceStatistics:
        """The accumulators of a shard.

        Args:
          batches: Rows of a split.
          split: Name of the split.
          shard: Number of the shard in the split. The same data in the same shards give
            the same sample.

        Raises:
          UserError: A row has no weight, or a slicing too many slices.
        """
        draw = np.random.default_rng([zlib.crc32(split.encode()), shard])
        slice_statistics = SliceStatistics(self)
        for batch in batches:
            kept = None
            if self.sample < 1:
                kept = draw.random(batch.num_rows) < self.sample
            slice_statistics.add(batch, self._parts(batch, kept, split))
        slice_statistics.compact()
        return slice_statistics

    def _parts(
        self, batch: Batch, kept: np.ndarray | None, split: str
    ) -> dict[SliceKey, Part]:
        weights = _weights(batch, self.weight, split) if self.weight else None
        whole = None if kept is None else pa.array(np.flatnonzero(kept))
        parts: dict[SliceKey, Part] = {None: Part(whole, weights)}
        for key, rows in slices.of(batch, self.slices):
            some = rows if kept is None else rows[kept[rows]]
            if len(some):
                parts[key] = Part(pa.array(some), weights)
        return parts


class SliceStatistics:
    """Accumulators of all rows and of slices; they merge.

    Args:
      request: Slices, weights and sample.

    Attributes:
      rows: Number of rows read, drawn or not.
    """

    def __init__(self, request: Request):
        self._request, self.rows = request, 0
        self._of: dict[SliceKey, list[Any]] = {None: self._empty()}

    def add(self, batch: Batch, parts: Mapping[SliceKey, Part]) -> None:
        """Adds rows.

        Args:
          batch: Decoded tf.Examples.
          parts: The rows of all and of each slice.
        """
        self.rows += batch.num_rows
        for key in parts:
            self._of.setdefault(key, self._empty())
        self._check()
        generators.add(self._of, batch, parts)

    def compact(self) -> None:
        """Takes no more memory than needed from now on."""
        for key, accumulators in self._of.items():
            self._of[key] = generators.compacted(accumulators, weighted=self._weighted)

    def merge(self, later: SliceStatistics) -> SliceStatistics:
        """The accumulators of both; neither is to be used again."""
        self.rows += later.rows
        for key, theirs in later._of.items():
            mine = self._of.get(key)
            self._of[key] = (
                generators.merged(mine, theirs, weighted=self._weighted)
                if mine
                else theirs
            )
        self._check()
        return self

    def extracted(self) -> Statistics:
        """The statistics: a dataset for all rows, then one for each slice."""
        self._check_names()
        result = Statistics()
        for key in sorted(self._of, key=lambda key: key or (-1, ())):
            accumulators = self._of.pop(key)
            of_slice = generators.extracted(accumulators, weighted=self._weighted)
            (dataset,) = of_slice.datasets
            if self._request.slices:
                dataset.name = slices.name(key)
            result.datasets.append(dataset)
        return result

    @property
    def _weighted(self) -> bool:
        return bool(self._request.weight)

    def _empty(self) -> list[Any]:
        return generators.empty(weighted=self._weighted)

    def _check(self) -> None:
        counts = np.bincount([key[0] for key in self._of if key] or [0])
        for count, slicing in zip(counts, self._request.slices, strict=False):
            slices.check(int(count), slicing)

    def _check_names(self) -> None:
        """Rejects two slices of one name: 1 of `a_b`, and `b_1` of `a`."""
        known: dict[str, SliceKey] = {}
        for key in filter(None, self._of):
            other = known.setdefault(slices.name(key), key)
            if other and other != key:
                both = sorted({self._request.slices[x].name for x, _ in (key, other)})
                raise UserError(
                    f"two slices have TFDV's name `{slices.name(key)}`",
                    key=slices.KEY,
                    received=" and ".join(f"`{each}`" for each in both),
                    remedy="Remove one of the entries, or rename a column.",
                )


def _weights(batch: Batch, name: str, split: str) -> pa.Array:
    """The weights of the rows, as lists of one float64.

    Raises:
      UserError: A row has none, several, or one that is no weight.
    """
    column = slices.column_of(batch, name)
    if not batch.num_rows:
        return pa.array([], pa.large_list(pa.float64()))
    if column is None:
        received = "no value"
    elif pa.types.is_large_binary(column.type.value_type):
        received = "a text"
    else:
        values = np.asarray(column.flatten(), np.float64)
        received = _unfit(column, values)
        if not received:
            offsets = pa.array(np.arange(len(values) + 1))
            return pa.LargeListArray.from_arrays(offsets, pa.array(values))
    raise UserError(
        key="weight",
        received=f"{received} as `{name}` in a row of split {split}",
        expected="one finite number in each row, 0 or more",
        remedy="Fill it before the data are read; a row that does not count weighs 0.",
    )


def _unfit(column: pa.Array, values: np.ndarray) -> str:
    """The value of the first row without one valid weight; "" if all have one."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    rows = np.flatnonzero(lengths != 1)
    if len(rows):
        count = int(lengths[rows[0]])
        return f"{count} values" if count else "no value"
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    return f"{wrong[0]:g}" if len(wrong) else ""

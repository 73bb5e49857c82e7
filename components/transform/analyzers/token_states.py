"""States of a combiner by token: for vocabularies that are ordered by labels.

Where the tokens grow with the rows, states go to disk, in parts by token. A token is in
the same part of each file, so the parts are merged one at a time.
"""

from __future__ import annotations

import collections
import pickle
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from strategos.components.shards import progress
from strategos.components.transform.analyzers import counts, spilled, tft_private
from strategos.components.transform.analyzers.spilled import Bounds

_OBJECTS = 600  # bytes of a token's objects of Python, beside its numbers


class TokenStates:
    """States by token, of which those on disk are partial.

    Args:
      bounds: Where states go that take too much memory.

    Attributes:
      held: The states in memory. A state under a sentinel of TFT is of all rows, and
        stays here.
    """

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        self.held: dict[Any, Any] = {}
        self._files: list[str] = []
        self._entry = 0  # bytes, as of one state

    @property
    def on_disk(self) -> bool:
        """Whether some states are on disk."""
        return bool(self._files)

    def take_files(self, later: TokenStates) -> None:
        """Adds the files of the states of later rows."""
        self._files += later._files

    def spill_if_large(self) -> None:
        """Writes the states to disk if they take too much memory."""
        if not self.held:
            return
        if not self._entry:
            self._entry = len(pickle.dumps(next(iter(self.held.values())))) + _OBJECTS
        if len(self.held) * self._entry <= self._bounds.bytes:
            return
        kept = {x: self.held.pop(x) for x in tft_private.SENTINELS if x in self.held}
        parts: dict[int, dict[Any, Any]] = collections.defaultdict(dict)
        for token, state in self.held.items():
            parts[_part(token)][token] = state
        tables = (_packed(parts[number]) for number in range(spilled.PARTS))
        self._files.append(spilled.write(tables, self._bounds.folder))
        self.held = kept

    def packed(self, most: int) -> dict[Any, Any] | None:
        """The states to keep for a later run; None if they are on disk.

        Args:
          most: Bytes; whoever writes the states checks it.
        """
        return None if self._files else self.held

    def unpack(self, packed: dict[Any, Any]) -> None:
        """Takes the states of `packed`; there are none yet."""
        self.held = packed

    def parts(self, combiner: Any) -> Iterator[dict[Any, Any]]:
        """Yields the states of all tokens, some at a time; each token once.

        Args:
          combiner: Merges the states.
        """
        if not self._files:
            yield self.held
            return
        held: dict[int, dict[Any, Any]] = collections.defaultdict(dict)
        for token, state in self.held.items():
            held[_part(token)][token] = state
        for number in range(spilled.PARTS):
            read = (_unpacked(spilled.read(file, number)) for file in self._files)
            partial: dict[Any, list[Any]] = collections.defaultdict(list)
            for states in (*read, held[number]):
                for token, state in states.items():
                    partial[token].append(state)
            yield {x: combiner.merge_accumulators(all_) for x, all_ in partial.items()}


def _part(token: Any) -> int:
    """The part of a token: by a hash, equal in each process."""
    content = token if isinstance(token, bytes) else str(token).encode()
    return zlib.crc32(content) % spilled.PARTS


def _packed(states: Mapping[Any, Any]) -> pa.Table:
    return pa.table(
        {"states": pa.array([pickle.dumps(dict(states))], pa.large_binary())}
    )


def _unpacked(table: pa.Table) -> dict[Any, Any]:
    (packed,) = table["states"].to_pylist()
    return pickle.loads(packed)


class Informative:
    """Tokens with the mutual information of each, computed when they are read.

    Iterated, it yields pairs: information and frequency, and the token.

    Args:
      states: How often each label occurs with a token, and in all rows.
      operation: `VocabularyMerge`.
      folder: Local folder for what takes too much memory.
    """

    def __init__(self, states: TokenStates, operation: Any, folder: str):
        kinds, ordering = tft_private.ordering, operation.vocab_ordering_type
        is_weighted = ordering == kinds.WEIGHTED_MUTUAL_INFORMATION
        self._mean = tft_private.WeightedMean((None,), compute_weighted=is_weighted)
        self._states, self._operation, self._folder = states, operation, folder
        held = states.held
        sentinels = [held.pop(x) for x in tft_private.SENTINELS if x in held]
        self._minimal = operation.min_diff_from_avg
        self._everything: Any = None  # of all rows
        for state in sentinels:
            self._everything = everything = self._rounded(state)
            if self._minimal is None:
                rows = everything.count * everything.weight
                self._minimal = tft_private.minimal_difference(rows)

    @property
    def on_disk(self) -> bool:
        """Whether the tokens take too much memory."""
        return self._states.on_disk

    def __iter__(self) -> Iterator[tuple[tuple[float, float], Any]]:
        for pairs in self._parts():
            yield from pairs

    def __len__(self) -> int:
        parts = self._states.parts(self._mean) if self._everything else ()
        return sum(map(len, parts))

    def pruned(self, operation: Any) -> counts.Counted:
        """The entries that TFT's thresholds leave, on disk.

        Args:
          operation: `VocabularyPrune`, without a `key_fn`.
        """
        thresholds = operation.frequency_threshold, operation.informativeness_threshold

        def table(pairs: counts.Pairs) -> pa.Table:
            kept = counts.passing(pairs, *thresholds)
            values, tokens = zip(*kept, strict=True) if kept else ((), ())
            columns = (
                pa.array(values, pa.float64()),
                pa.array(tokens, pa.large_binary()),
            )
            return pa.table([*columns], ["count", "value"])

        tables, top = map(table, self._parts()), operation.top_k
        ranked = spilled.ranked_parts(tables, self._folder, top)
        if top is None or len(ranked):
            return ranked
        return counts.or_dummy([], operation.input_dtype)

    def _parts(self) -> Iterator[list[tuple[tuple[float, float], Any]]]:
        parts = self._states.parts(self._mean) if self._everything else ()
        for number, states in enumerate(parts):
            progress.say(f"mutual information: part {number + 1} of {spilled.PARTS}")
            yield [self._scored(each) for each in states.items()]

    def _scored(self, entry: tuple[Any, Any]) -> tuple[tuple[float, float], Any]:
        token, state = entry
        _, (value, _, frequency) = tft_private.information(
            (token, self._rounded(state)),
            self._everything,
            self._operation.use_adjusted_mutual_info,
            self._minimal,
        )
        return (value, frequency), token

    def _rounded(self, state: Any) -> Any:
        """As TFT, which rounds when it accumulates, and when it merges."""
        for _ in range(2):
            first = self._mean.create_accumulator()
            state = self._mean.extract_output(self._mean.add_input(first, state))
        return state

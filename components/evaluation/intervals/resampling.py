"""How often each row counts in each resample of a Poisson bootstrap; numpy only.

In place of drawing n rows with replacement, each row counts Poisson(1) times (Chamandy
et al. 2012, "Estimating uncertainty for massive data streams"), so that sums over parts
of the rows merge. The draw depends on a row's file and its place there alone: however
files are divided among workers, the resamples are the same.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from strategos.components.evaluation.classes.entries import SliceMembership

RESAMPLES = 20
"""Number of resamples, as in TFMA: the interval is that of Student's t."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LIKELY = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(18)])


Resampled = Literal["", "rows", "slices"]
"""The sums to resample: none, of all rows, or of each slice, too."""


def wanted(evaluator: Mapping[str, Any]) -> Resampled:
    """The resamples that the intervals of an evaluation need.

    Args:
      evaluator: The section: confidence_level, slice_intervals.
    """
    if not evaluator.get("confidence_level"):
        return ""
    return "slices" if evaluator.get("slice_intervals") else "rows"


def slices(values: Sequence[Any]) -> SliceMembership:
    """The slices of resamples: each value with the number of each resample.

    Args:
      values: The values of the slices.

    Returns:
      The slices, without rows.
    """
    none = np.zeros(0, np.int64)
    pairs = [(value, resample) for value in values for resample in range(RESAMPLES)]
    return SliceMembership(pairs, none, none)


def times(file: str, first: int, rows: int) -> np.ndarray:
    """How often rows count, int64 [rows, RESAMPLES].

    Args:
      file: The file of the rows; only its name counts, not its folder.
      first: Place of the first row in the file.
      rows: Number of rows, which stand together.
    """
    name = os.path.basename(file).encode()
    seed = np.frombuffer(hashlib.blake2b(name, digest_size=8).digest(), np.uint64)
    row = np.arange(first, first + rows, dtype=np.uint64)
    with np.errstate(over="ignore"):  # modulo 2**64
        own = mixed(seed + row * _STEP)
    return times_of(own)


def times_of(bits: np.ndarray) -> np.ndarray:
    """How often rows, or other units such as queries, count; int64 [n, RESAMPLES].

    Args:
      bits: uint64 [n], random numbers that stand for the units.
    """
    sample = np.arange(1, RESAMPLES + 1, dtype=np.uint64) * _STEP
    with np.errstate(over="ignore"):
        drawn = mixed(bits[:, np.newaxis] + sample)
    share = (drawn >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(_LIKELY, share.reshape(-1), side="right").reshape(
        drawn.shape
    )


def mixed(bits: np.ndarray) -> np.ndarray:
    """Each number as 64 random bits, by the finalizer of SplitMix64 (Steele 2014).

    Args:
      bits: uint64 [n]; of distinct numbers, the bits are distinct.
    """
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))

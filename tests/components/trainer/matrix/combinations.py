"""The cells of the matrix: every two values of different dimensions meet in one."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

Cell = dict[str, Any]
Pair = tuple[tuple[str, Any], ...]

REPLICAS = {
    "one_device": 1,
    "mirrored_2": 2,
    "mirrored_3": 3,
    "central_storage": 2,
    "two_workers": 2,
}
ROWS, EVALUATED = 961, 301
BATCHES = {"even": 96, "uneven": 102, "few": 96}
"""Rows of a batch: all are full, the last has 43 rows, the last has one row."""

DIMENSIONS: Mapping[str, tuple[Any, ...]] = {
    "strategy": tuple(REPLICAS),
    "keras": (2, 3),
    "inputs": ("dense", "sparse", "ragged"),
    "layers": ("plain", "outputs", "frozen", "nested", "shared", "lists"),
    "penalty": (None, "l2"),
    "normalization": (
        *("none", "batch_norm", "sync_batch_norm", "batch_norm_in_build"),
    ),
    "dropout": ("none", "dropout", "dropout_in_build", "stock_dropout"),
    "optimizer": (
        *("Adam", "AdamW", "Adamax", "Adadelta", "Adafactor", "Adagrad"),
        *("Ftrl", "Lion", "Nadam", "RMSprop", "SGD"),
    ),
    "step": ("stock", "own"),
    "task": ("binary", "classes"),
    "precision": ("float32", "bfloat16", "float16"),
    "executions": (None, 1, 5),
    "batch": tuple(BATCHES),
    "rate": ("constant", "warm_up", "schedule", "plateau"),
    "keep": ("last", "best_checkpoint", "early_stopping"),
    "average": ("none", "at_end", "overwritten"),
    "clip": ("none", "clipnorm", "clipvalue", "global_clipnorm"),
    "loss": ("mean", "sum", "none", "own_mean", "own_sum"),
}

_OF_KERAS_2 = {
    ("inputs", "sparse"),
    ("inputs", "ragged"),
    ("normalization", "sync_batch_norm"),
    ("normalization", "batch_norm_in_build"),
    ("dropout", "dropout_in_build"),
    ("loss", "none"),
}
_CANDIDATES = 40

OF_REPLICAS = {
    ("normalization", "batch_norm"),
    ("normalization", "batch_norm_in_build"),
    ("dropout", "stock_dropout"),
}
"""What depends on the division of a batch among replicas."""

_FITS_REPLICAS = {"clip": "none", "precision": "float32", "executions": None}
"""With these, Keras 3's own `fit` is right for several replicas of one process."""

_MIRRORED = {"strategy": "mirrored_2", "keras": 3}
REJECTED: list[tuple[Cell, str]] = [
    ({"strategy": "central_storage", "precision": "float16"}, "mixed precision"),
    (
        {"strategy": "central_storage", "keras": 3, "precision": "float16"},
        "mixed precision",
    ),
    ({**_MIRRORED, "average": "overwritten"}, "`ema_overwrite_frequency`"),
    ({**_MIRRORED, "step": "own"}, "`train_step` of its own"),
    ({**_MIRRORED, "loss": "own_mean"}, "the loss is one number for a batch"),
]
"""What differs from the plainest cell, and a pattern of the error."""


def cells() -> list[Cell]:
    """A small list of cells in which each possible pair occurs; always the same."""
    generator = random.Random(1)
    left = {pair for pair in _pairs() if _fill(dict(pair), generator)}
    found = []
    while left:
        seed = dict(min(left, key=repr))
        made = [_fill(dict(seed), generator, left) for _ in range(_CANDIDATES)]
        best = max(made, key=lambda cell: len(left & _pairs_of(cell)))
        left -= _pairs_of(best)
        found.append(best)
    return found


@functools.cache  # each file of a strategy asks; they take two seconds
def all_cells() -> list[Cell]:
    """The cells that train, and those that are rejected."""
    plain = {key: values[0] for key, values in DIMENSIONS.items()}
    return cells() + [{**plain, **changes} for changes, _ in REJECTED]


def rejection(cell: Cell) -> str | None:
    """A pattern of the error that a cell ends with; None if it trains."""
    like = {"mirrored_3"}
    if cell.get("keras") == 3:
        like |= {"two_workers", "central_storage"}
    cells = [cell]
    if cell.get("strategy") in like:
        cells.append({**cell, "strategy": "mirrored_2"})
    for changes, error in REJECTED:
        if any(changes.items() <= each.items() for each in cells):
            return error
    return None


def drops_last_batch(cell: Cell) -> bool:
    """Whether the smaller last batch of an epoch is left out."""
    if cell["batch"] == "even":
        return True
    if REPLICAS[cell["strategy"]] == 1:
        return False
    return (
        (cell["keras"], cell["loss"]) == (3, "own_sum")
        or cell["step"] == "own"
        or (cell["executions"] or 1) > 1
        or cell["normalization"] != "none"
        or cell["loss"] in ("sum", "none")
    )


def name(cell: Cell) -> str:
    """A short name of a cell: what differs from the plainest one."""
    plain = {key: values[0] for key, values in DIMENSIONS.items()}
    return "-".join(
        str(cell[key]) if key != "executions" else f"{cell[key]}-steps"
        for key in DIMENSIONS
        if key == "strategy" or cell[key] != plain[key]
    )


def is_possible(cell: Cell) -> bool:
    """Whether a cell trains, and plain Keras shows what is right."""
    if rejection(cell):
        return False
    several = REPLICAS.get(cell.get("strategy", ""), 1) > 1
    if cell.get("keras") == 3 and several and not _fit_measures(cell):
        return False
    if {("dropout", "stock_dropout"), ("step", "own")} <= set(cell.items()) and several:
        return False  # its masks depend on how often tf-keras traces the step
    if (cell.get("penalty"), cell.get("loss")) == ("l2", "none"):
        return False  # tf-keras adds no number to a value for each row
    return cell.get("keras") != 3 or _OF_KERAS_2.isdisjoint(cell.items())


def plain_is_right(cell: Cell) -> bool:
    """Whether plain Keras measures what is right in a cell that it trains.

    The mean of two replicas' means, one of them of no rows, is not that of the rows.
    """
    of_replicas = REPLICAS[cell["strategy"]] > 1 and cell["dropout"] == "stock_dropout"
    means = cell["loss"] == "own_mean" and cell["batch"] != "even"
    return not (of_replicas and means) or drops_last_batch(cell)


def _fit_measures(cell: Cell) -> bool:
    """Whether Keras 3's own `fit` shows what is right on several replicas."""
    if (cell.get("precision"), cell.get("loss")) == ("float16", "sum"):
        return False  # a sum overflows sooner on one device; `fit` clips each part
    if OF_REPLICAS.isdisjoint(cell.items()):
        return True  # it trains on one device
    fits = _FITS_REPLICAS.items() <= {**_FITS_REPLICAS, **cell}.items()
    return fits and cell.get("strategy") not in ("two_workers", "central_storage")


def _pairs() -> Iterator[Pair]:
    for one, two in itertools.combinations(DIMENSIONS, 2):
        for values in itertools.product(DIMENSIONS[one], DIMENSIONS[two]):
            yield tuple(zip((one, two), values, strict=True))


def _pairs_of(cell: Cell) -> set[Pair]:
    items = [(key, cell[key]) for key in DIMENSIONS if key in cell]
    return set(itertools.combinations(items, 2))


def _fill(
    cell: Cell, generator: random.Random, left: set[Pair] | None = None
) -> Cell | None:
    """Completes a cell by the values that cover most pairs; None if that fails."""
    names = [key for key in DIMENSIONS if key not in cell]
    generator.shuffle(names)
    names.sort(key="keras".__ne__)  # first: much is possible with one of them only
    for key in names:
        values = [v for v in DIMENSIONS[key] if is_possible({**cell, key: v})]
        if not values:
            return None
        generator.shuffle(values)
        if left is not None:
            values.sort(
                key=lambda v: (
                    -sum(frozenset([(key, v), item]) in left for item in cell.items())
                )
            )
        cell[key] = values[0]
    return {key: cell[key] for key in DIMENSIONS} if is_possible(cell) else None

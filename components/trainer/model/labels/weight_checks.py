"""Checks that the weights of the rows can weigh them."""

from __future__ import annotations

import numpy as np

from strategos.components.errors import UserError


def check(weight: np.ndarray, name: str, split: str) -> None:
    """Rejects weights that are negative or not finite, and weights that are all 0.

    Args:
      weight: The weights of all rows of a split, `[rows, 1]`.
      name: Name of the weight.
      split: Name of the split, for the message.

    Raises:
      UserError: A row's weight is wrong, or no row counts.
    """
    if weight[0].size != 1:
        raise UserError(
            key="weight",
            received=f"{weight[0].size} values of `{name}` a row after "
            "`preprocessing_fn`",
            expected="one number a row",
        )
    flat = weight.reshape(-1).astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(flat) & (flat >= 0)))
    if len(wrong):
        raise UserError(
            key="weight",
            received=f"{flat[wrong[0]]:g} as `{name}` in row {wrong[0] + 1:,} of the "
            f"{split} split, the first of {len(wrong):,} such rows",
            expected="a finite number, 0 or more",
            remedy="A row that does not count weighs 0.",
        )
    if not flat.any():
        raise UserError(
            f"`{name}` is 0 in all {len(flat):,} rows of the {split} split, so no row "
            "counts",
            key="weight",
            remedy="Check how the weight is made, or remove `weight`.",
        )

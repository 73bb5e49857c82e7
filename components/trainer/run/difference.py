"""Compares the weights of two exported models, number by number.

`python -m strategos.components.trainer.run.difference`, for `strategos reproduce`.
"""

from __future__ import annotations

import os
from typing import Any

from strategos.components.files import digests
from strategos.components.slow_imports import np
from strategos.components.worker_process import serve

_VARIABLES = ("variables", "variables")
_OF_THE_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Compares the variables and assets of two SavedModels.

    Args:
      request: `first` and `second`, folders of SavedModels.

    Returns:
      `weights`, the number of variables in either; `numbers`, of their elements in the
      first; `differing`, for each variable that is not equal bit by bit: its `name` and
      `difference`, the largest of its elements; None if the shapes differ, the elements
      are no finite numbers, or only one model has it. `assets`, names of files that
      differ, e.g. vocabularies.
    """
    import tensorflow as tf

    readers = [
        tf.train.load_checkpoint(os.path.join(request[name], *_VARIABLES))
        for name in ("first", "second")
    ]
    names = [set(x.get_variable_to_shape_map()) - {_OF_THE_GRAPH} for x in readers]
    differing: list[dict[str, Any]] = []
    numbers = 0
    for name in sorted(names[0] | names[1]):
        difference: float | None = None
        if all(name in each for each in names):
            first, second = (np.asarray(each.get_tensor(name)) for each in readers)
            numbers += first.size
            if _are_equal(first, second):
                continue
            difference = _largest(first, second)
        differing.append({"name": _short(name), "difference": difference})
    return {
        "weights": len(names[0] | names[1]),
        "numbers": numbers,
        "differing": differing,
        "assets": _differing_assets(request["first"], request["second"]),
    }


def _are_equal(first: Any, second: Any) -> bool:
    if first.dtype == object:  # texts
        return first.tolist() == second.tolist()
    alike = first.dtype == second.dtype and first.shape == second.shape
    return alike and first.tobytes() == second.tobytes()


def _largest(first: Any, second: Any) -> float | None:
    """The largest difference of two elements; None if there is no finite one."""
    if first.shape != second.shape or first.dtype == object:
        return None
    largest = float(np.abs(first.astype("float64") - second.astype("float64")).max())
    return largest if np.isfinite(largest) else None


def _short(name: str) -> str:
    return name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")


def _differing_assets(first: str, second: str) -> list[str]:
    assets = [_assets(each) for each in (first, second)]
    names = sorted(assets[0].keys() | assets[1].keys())
    return [name for name in names if assets[0].get(name) != assets[1].get(name)]


def _assets(model: str) -> dict[str, str]:
    folder = os.path.join(model, "assets")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    hashed = digests.digests([os.path.join(folder, name) for name in names])
    return dict(zip(names, hashed, strict=True))


if __name__ == "__main__":
    serve(work)

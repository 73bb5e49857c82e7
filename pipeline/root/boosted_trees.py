"""The metric of trees on the rows of a run, which `strategos init --baseline` trains.

A file of the root's state keeps it, by the Examples artifact: a run has the same
artifact as long as data, split and schema are the same. A property of the artifact
would change the cache keys of all nodes that read it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from strategos.components.files import commit
from strategos.pipeline.root.state import state_folder

NAME = "gradient-boosted trees (scikit-learn)"

_FILE = "trees.json"


@dataclasses.dataclass(frozen=True)
class Trees:
    """A metric of trees on the rows of `eval`.

    Attributes:
      label: The label.
      metric: Name of the metric.
      value: Its value, without weights of rows.
    """

    label: str
    metric: str
    value: float


def record(root: str, examples: str, trees: Trees) -> None:
    """Records a metric.

    Args:
      root: The pipeline root.
      examples: URI of the Examples artifact.
      trees: The metric.
    """
    known = _read(root) | {_name(examples): dataclasses.asdict(trees)}
    commit.write(state_folder(root) / _FILE, json.dumps(known))


def recorded(root: str, examples: str) -> Trees | None:
    """The recorded metric; None if none is.

    Args:
      root: The pipeline root.
      examples: URI of the Examples artifact.
    """
    entry = _read(root).get(_name(examples))
    return Trees(**entry) if entry else None


def _read(root: str) -> dict[str, Any]:
    try:
        return dict(json.loads((state_folder(root) / _FILE).read_text()))
    except (OSError, ValueError):
        return {}


def _name(examples: str) -> str:
    """PIPELINE/NODE/OUTPUT/NUMBER: the same after the root has moved."""
    return "/".join(examples.rstrip("/").split("/")[-4:])

"""Checks metrics of TFMA and Keras before the first node, by a rehearsal on a few rows.

It takes seconds, so the metrics that have passed are kept in the root's state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.library.classes import is_known
from strategos.components.files import commit
from strategos.pipeline.config.sections import Config
from strategos.pipeline.root.state import make_state, state_folder

_FILE = "rehearsed-metrics.json"
_MODULE = "strategos.components.evaluation.library.rehearsal"
_PACKAGES = ("tensorflow-model-analysis", "tf-keras", "tensorflow", "numpy")


def check(config: Config) -> list[UserError]:
    """The metrics by class that cannot be computed; imports TFMA in another process.

    Args:
      config: The effective settings.
    """
    metrics = list(_asked(config))
    passed, path = _passed(config), state_folder(config.run.root) / _FILE
    weighted = bool(config.weight)
    keys = {each: _key(each.name, each.task, weighted) for each in metrics}
    new = [each for each in metrics if keys[each] not in passed]
    if not new:
        return []
    env = {**worker_process.TENSORFLOW, **worker_process.NO_GPU}
    pairs = [[each.name, each.task] for each in new]
    request = {"metrics": pairs, "weighted": weighted}
    with worker_process.log_kept_back():
        result = worker_process.run(_MODULE, request, name="metrics", env=env)
    answers = list(zip(new, result["problems"], strict=True))
    good = {keys[each] for each, problem in answers if not problem}
    make_state(path.parent)
    commit.write(path, json.dumps(sorted({*passed, *good})))
    return [
        config.problem(f"evaluator.metrics.{each.place}", **problem)
        for each, problem in answers
        if problem
    ]


class _Asked(NamedTuple):
    """A metric by class: its place in `evaluator.metrics`, its name without head."""

    place: int
    name: str
    task: str


def _asked(config: Config) -> Iterator[_Asked]:
    """Yields each metric by class in `evaluator.metrics`."""
    if not config.evaluator:
        return
    task = config.evaluator.task
    for place, name in enumerate(config.evaluator.metrics):
        head, metric = naming.split(name)
        if isinstance(task, str) and is_known(name):
            yield _Asked(place, name, task)
        elif not isinstance(task, str) and is_known(metric):
            yield _Asked(place, metric, task[head])


def _passed(config: Config) -> list[str]:
    path: Path = state_folder(config.run.root) / _FILE
    try:
        keys = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return keys if isinstance(keys, list) else []


def _key(name: str, task: str, weighted: bool) -> str:
    """Stands for a rehearsal: the metric, the rows, and the packages."""
    versions = [metadata.version(package) for package in _PACKAGES]
    text = json.dumps([name, task, weighted, versions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""Differences between two runs: causes, metrics and nodes."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from strategos.components.errors import BadInputError, UserError
from strategos.components.evaluation.intervals import margins
from strategos.components.wording import cut
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.made_from.record import DataFile, Kept

_NO_CAUSES: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("settings", "code", "data", "stack"), ()
)
_Part = Mapping[str, Any] | None  # a summary, or one of its slices
_FEWEST = 30  # rows of a slice: chance decides in smaller ones


@dataclasses.dataclass(frozen=True)
class Change:
    """One value that differs.

    Attributes:
      name: Its name, e.g. `trainer.epochs` or `packages.tensorflow`.
      before: The value in the first run; None if it has none.
      after: The value in the second run; None if it has none.
    """

    name: str
    before: Any
    after: Any


@dataclasses.dataclass(frozen=True)
class FileChange:
    """One file of the user's code, or of the data, that differs.

    Attributes:
      path: The path; of code, relative to the YAML's folder.
      state: `added`, `removed` or `changed`.
      diff: The lines of a unified diff; empty for data, and for files that are not text
        or not stored.
    """

    path: str
    state: str
    diff: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class MetricChange:
    """A metric in both runs.

    Attributes:
      name: The metric.
      before: Its value in the first run; None if it is undefined or missing.
      after: Its value in the second run; likewise.
      slice: `overall` or `feature=value`.
      examples: Rows of the slice in the second run.
      before_margin: Half the width of the confidence interval in the first run; None
        without one, and for slices: only their changes have a margin.
      after_margin: The same in the second run.
      margin: Half the width of the confidence interval of the change; None unless both
        runs have intervals of one level.
    """

    name: str
    before: float | None
    after: float | None
    slice: str = "overall"
    examples: int = 0
    before_margin: float | None = None
    after_margin: float | None = None
    margin: float | None = None

    @property
    def is_beyond(self) -> bool | None:
        """Whether the change is larger than its margin; None if that is unknown."""
        return None if self.margin is None else self.size > self.margin

    @property
    def size(self) -> float:
        """The size of the difference, in units of the metric; infinite if undefined."""
        if self.before is None or self.after is None:
            return 0.0 if self.before == self.after else math.inf
        return abs(self.after - self.before)


@dataclasses.dataclass(frozen=True)
class NodeChange:
    """The time of a node in both runs.

    Attributes:
      name: The node's id.
      before: The node in the first run; None if it did not run.
      after: The node in the second run; likewise.
    """

    name: str
    before: NodeRun | None
    after: NodeRun | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs of a pipeline.

    Attributes:
      before: The first run.
      after: The second run.
      unknown: Why causes are not compared, e.g. a run without a record; "" if they are.
      settings: Settings that differ.
      code: Files of the user's code, and the schema, that differ.
      data: Data files that differ.
      stack: Versions, properties of the machine and variables that differ.
      metrics: Metrics over all examples, equal ones too.
      slices: Metrics of slices that differ, of at least 30 rows in both runs, by the
        size of the difference.
      nodes: The nodes of both runs.
    """

    before: Run
    after: Run
    unknown: str
    settings: tuple[Change, ...]
    code: tuple[FileChange, ...]
    data: tuple[FileChange, ...]
    stack: tuple[Change, ...]
    metrics: tuple[MetricChange, ...]
    slices: tuple[MetricChange, ...]
    nodes: tuple[NodeChange, ...]


def compare(
    before: Run, after: Run, kept: Callable[[str, str | None], Kept]
) -> Comparison:
    """Compares two runs.

    Args:
      before: The first run, in full.
      after: The second run, in full.
      kept: Reads the record of a run, by the run's id and log.

    Raises:
      BadInputError: The runs are the same or of different pipelines, or one has not
        ended.
    """
    reject(before, after)
    unknown, causes = "", _NO_CAUSES
    try:
        first, second = (kept(each.run_id, each.log) for each in (before, after))
        causes = _causes(first, second)
    except UserError as error:
        unknown = str(error)
    return Comparison(
        before,
        after,
        unknown,
        **causes,
        metrics=tuple(_metrics(before, after)),
        slices=tuple(_slices(before, after)),
        nodes=tuple(_nodes(before.nodes, after.nodes)),
    )


def stack_changes(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> tuple[Change, ...]:
    """The entries of two stacks that differ.

    Args:
      before: Of `MadeFrom.stack`.
      after: Of `MadeFrom.stack`.
    """
    return tuple(changes(dict(leaves(before)), dict(leaves(after))))


def shown(value: Any, most: int) -> str:
    """A value for people, cut to at most `most` characters."""
    if value is None:
        return "not set"
    return cut(value if isinstance(value, str) else json.dumps(value), most)


def to_json(compared: Comparison) -> dict[str, Any]:
    """A comparison as JSON-able values; of each run the id, outcome and times."""
    plain = dataclasses.asdict(compared)
    for name in ("before", "after"):
        run = getattr(compared, name)
        kept = ("run_id", "started", "duration", "outcome", "pushed")
        plain[name] = {key: getattr(run, key) for key in kept}
    return plain


def reject(before: Run, after: Run) -> None:
    """Rejects runs that cannot be compared.

    Args:
      before: The first run.
      after: The second run.

    Raises:
      BadInputError: They are the same or of different pipelines, or one has not ended.
    """
    if before.run_id == after.run_id:
        raise BadInputError(f"run {before.run_id} is compared with itself")
    if before.pipeline != after.pipeline:
        raise BadInputError(
            f"run {before.run_id} is of the pipeline {before.pipeline}, and run "
            f"{after.run_id} of {after.pipeline}",
            remedy="Name two runs of one pipeline; see `strategos runs`.",
        )
    for run in (before, after):
        reject_running(run)


def reject_running(run: Run) -> None:
    """Rejects a run that has not ended.

    Args:
      run: The run, in full.

    Raises:
      BadInputError: It is still going.
    """
    if run.outcome == "running":
        at = [node.name for node in run.nodes if node.state == "running"]
        where = f" at {at[-1]}" if at else ""
        raise BadInputError(
            f"run {run.run_id} is still going{where}",
            remedy="Repeat the command when it has ended; `strategos runs show "
            f"{run.run_id}` says how far it is.",
        )


def _causes(before: Kept, after: Kept) -> dict[str, tuple[Any, ...]]:
    first, second = before.made_from, after.made_from
    return {
        "settings": tuple(changes(_settings(before), _settings(after))),
        "code": tuple(code(before, after)),
        "data": tuple(data(first.data, second.data)),
        "stack": stack_changes(first.stack, second.stack),
    }


def _settings(kept: Kept) -> dict[str, Any]:
    """Settings by key path, with paths relative to the YAML's folder."""
    folder = os.path.dirname(kept.made_from.yaml)
    return {
        key: os.path.relpath(value, folder)
        if isinstance(value, str) and value.startswith(f"{folder}/")
        else value
        for key, value in leaves(kept.made_from.settings)
    }


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of a nested mapping by key path, without empty ones.

    Args:
      values: The mapping.
      prefix: The beginning of each path.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        elif value not in ({}, None):
            yield f"{prefix}{name}", value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yields the values that differ.

    Args:
      before: Values by name.
      after: Values by name.
    """
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))


def code(before: Kept, after: Kept) -> Iterator[FileChange]:
    """Yields the files of the user's code that differ.

    Args:
      before: The record of the first run.
      after: The record of the second run.
    """
    first, second = before.made_from.code, after.made_from.code
    for path in sorted(first.keys() | second.keys()):
        if first.get(path) == second.get(path):
            continue
        old, new = _lines(before, first.get(path)), _lines(after, second.get(path))
        diff: tuple[str, ...] = ()
        if old is not None and new is not None:
            names = f"a/{path}", f"b/{path}"
            diff = tuple(difflib.unified_diff(old, new, *names, lineterm=""))
        yield FileChange(path, _state(path in first, path in second), diff)


def _lines(kept: Kept, digest: str | None) -> list[str] | None:
    """The lines of a file; none if the run has no such file; None if it is not text."""
    if digest is None:
        return []
    stored = kept.content(digest)
    try:
        return None if stored is None else stored.decode().splitlines()
    except UnicodeDecodeError:
        return None


def data(before: Sequence[DataFile], after: Sequence[DataFile]) -> Iterator[FileChange]:
    """Yields the data files that differ; one that was only moved does not.

    Args:
      before: The files of the first run.
      after: The files of the second run.
    """
    first = {each.path: each.digest for each in before}
    second = {each.path: each.digest for each in after}
    moved = set(first.values()) & set(second.values())
    for path in sorted(first.keys() | second.keys()):
        old, new = first.get(path), second.get(path)
        is_moved = None in (old, new) and (old or new) in moved
        if old != new and not is_moved:
            yield FileChange(path, _state(path in first, path in second))


def _state(is_in_first: bool, is_in_second: bool) -> str:
    if is_in_first and is_in_second:
        return "changed"
    return "removed" if is_in_first else "added"


def _metrics(before: Run, after: Run) -> Iterator[MetricChange]:
    old, new = (margins.of(run.summary, "metrics") for run in (before, after))
    of_changes = _margins(before, after)(before.summary, after.summary)
    for name in dict.fromkeys([*before.metrics, *after.metrics]):
        yield MetricChange(
            name,
            before.metrics.get(name),
            after.metrics.get(name),
            before_margin=old.get(name),
            after_margin=new.get(name),
            margin=of_changes.get(name),
        )


def _margins(before: Run, after: Run) -> Callable[[_Part, _Part], dict[str, float]]:
    """Gives the margin of each metric's change, of two summaries or of their slices.

    If the second run was compared with the model of the first one on its own rows, the
    Evaluator's interval of the paired change. Else one of two independent values.
    """
    production = (after.summary or {}).get("baseline") or {}
    paired = {name: production.get(name) for name in before.metrics}
    if paired and paired == before.metrics:
        return lambda _, own: margins.of(own, "changes")
    one, other = map(margins.heading, (before.summary, after.summary))
    return margins.of_difference if one == other else lambda *_: {}


def _slices(before: Run, after: Run) -> list[MetricChange]:
    of_changes = _margins(before, after)
    known = {_place(each): each for each in (before.summary or {}).get("slices", ())}
    changes = []
    for each in (after.summary or {}).get("slices", ()):
        place, examples = _place(each), each["examples"]
        old = known.get(place)
        if not old or min(examples, old["examples"]) < _FEWEST:
            continue
        of_change = of_changes(old, each)
        for name, value in each["metrics"].items():
            values = old["metrics"].get(name), value
            margin = of_change.get(name)
            changes.append(MetricChange(name, *values, place, examples, margin=margin))
    return sorted((each for each in changes if each.size), key=lambda each: -each.size)


def _place(part: Mapping[str, Any]) -> str:
    return f"{part['feature']}={part['value']}"


def _nodes(before: Sequence[NodeRun], after: Sequence[NodeRun]) -> Iterator[NodeChange]:
    first, second = ({node.name: node for node in nodes} for nodes in (before, after))
    for name in dict.fromkeys([*first, *second]):
        yield NodeChange(name, first.get(name), second.get(name))

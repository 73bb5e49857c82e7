"""Why each node of a run ran or was taken from the cache.

A node that ran is compared with its execution before: parameters, inputs, and the files
behind a fingerprint. These are what TFX's cache compares, so one of them differs, or
the execution before is of no use.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.wording import abridged
from strategos.pipeline.history.runs import Run
from strategos.pipeline.history.store import Store, properties, reads_store
from strategos.pipeline.made_from.compared import (
    Change,
    changes,
    code,
    data,
    leaves,
    shown,
)
from strategos.pipeline.made_from.record import Kept
from strategos.pipeline.root import RUN_CONTEXT

_NAMED = 4
_WIDTH = 40
_FINGERPRINT = "fingerprint"


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a node of a run ran, or did not.

    Attributes:
      node: The node's id.
      state: As in `NodeRun`.
      text: The reason, without a full stop.
      compared: The run with the execution before, or that made the outputs of a cached
        node; "" without one.
      parameters: Parameters that differ from the execution before.
      inputs: Inputs that differ: the name, and the node that made it.
      files: Files of the code or the data that differ, as far as they are recorded.
    """

    node: str
    state: str
    text: str
    compared: str = ""
    parameters: tuple[Change, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Execution:
    """The parameters and inputs of a node's execution.

    Attributes:
      run_id: The run.
      parameters: Its parameters, nested.
      inputs: Identity of its input artifacts, by the name of the input.
      makers: The nodes that made an input, by the name of the input.
      has_ended: Whether it has outputs.
    """

    run_id: str
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Any]
    makers: Mapping[str, str]
    has_ended: bool = True


def of_cached(node: str, state: str, made_by: str) -> Reason:
    """Why a node was taken from the cache.

    Args:
      node: The node's id.
      state: As in `NodeRun`.
      made_by: The run that made its outputs; "" if that is unknown.
    """
    since = f"run {made_by}" if made_by else "its run before"
    return Reason(node, state, f"nothing changed since {since}", made_by)


def of_executed(
    node: str,
    state: str,
    before: Execution | None,
    after: Execution,
    records: Mapping[str, Kept | None],
) -> Reason:
    """Why a node ran.

    Args:
      node: The node's id.
      state: As in `NodeRun`.
      before: Its execution before; None if it had not run before.
      after: Its execution.
      records: The records of runs, by id; None for a run without a record.
    """
    if before is None:
        return Reason(node, state, "it had not run before")
    changed = tuple(
        changes(dict(leaves(before.parameters)), dict(leaves(after.parameters)))
    )
    inputs = tuple(
        (name, after.makers.get(name, ""))
        for name, made in after.inputs.items()
        if made != before.inputs.get(name)
    )
    kept = records[before.run_id], records[after.run_id]
    files = tuple(_files(node, changed, *kept))
    text = _text(changed, inputs, files) or _without_difference(before)
    return Reason(node, state, text, before.run_id, changed, inputs, files)


@reads_store
def of_run(
    store: Store, run: Run, records: Mapping[str, Kept | None]
) -> tuple[Reason, ...]:
    """Explains each node of a run, in the order in which they started.

    Args:
      store: The root's ML Metadata.
      run: The run, in full.
      records: The records of runs, by id; None for a run without a record.
    """
    context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run.run_id)
    executions = store.mlmd.get_executions_by_context(context.id)
    states = {node.name: node.state for node in run.nodes}
    history = _History(store, run.pipeline)
    return tuple(
        _reason(history, execution, states, records)
        for execution in sorted(executions, key=lambda each: each.id)
    )


class _History:
    """The executions of a pipeline's nodes."""

    def __init__(self, store: Store, pipeline: str):
        self._store, self._pipeline = store, pipeline

    def before(self, execution: mlmd.Execution) -> mlmd.Execution | None:
        """The node's execution before this one."""
        name = f"{self._pipeline}.{node_of(execution)}"
        node = self._store.mlmd.get_context_by_type_and_name("node", name)
        every = self._store.mlmd.get_executions_by_context(node.id) if node else []
        earlier = [each for each in every if each.id < execution.id]
        return max(earlier, key=lambda each: each.id, default=None)

    def run_of(self, execution: int) -> str:
        return self._store.contexts_of([execution])[execution].get(RUN_CONTEXT, "")

    def maker(self, execution: mlmd.Execution) -> int | None:
        """The execution that made the outputs of this one; None without outputs."""
        outputs = self._store.outputs_of([execution.id]).get(execution.id, [])
        made = self._store.producers_of(each.id for each in outputs)
        return min(made.values(), default=None)

    def described(self, execution: mlmd.Execution) -> Execution:
        """An execution as reasons compare it."""
        artifacts: dict[str, list[int]] = {}
        for event in self._store.mlmd.get_events_by_execution_ids([execution.id]):
            if event.type == mlmd.Event.INPUT:
                name = next((step.key for step in event.path.steps if step.key), "")
                artifacts.setdefault(name, []).append(event.artifact_id)
        ended = (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)
        return Execution(
            run_id=self.run_of(execution.id),
            parameters=decoded(properties(execution)),
            inputs={name: sorted(ids) for name, ids in artifacts.items()},
            makers={name: self.node_that_made(ids) for name, ids in artifacts.items()},
            has_ended=execution.last_known_state in ended,
        )

    def node_that_made(self, artifacts: Sequence[int]) -> str:
        """The node that made artifacts; "" for none."""
        made = self._store.producers_of(artifacts).values()
        records = self._store.mlmd.get_executions_by_id(sorted(set(made)))
        return ", ".join(sorted({node_of(each) for each in records}))


def node_of(execution: mlmd.Execution) -> str:
    """The id of the node of an execution: `node_ids` are names of classes."""
    return str(execution.type).rpartition(".")[2]


def decoded(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, with JSON texts as nested values.

    Args:
      parameters: As TFX records them.
    """
    values = dict(parameters)
    for name, value in parameters.items():
        if isinstance(value, str) and value[:1] == "{":
            values[name] = json.loads(value)
        if name == "stack":  # `tfx 1.16.0, tensorflow 2.16.2, …`
            values[name] = dict(x.rsplit(" ", 1) for x in value.split(", "))
    return values


def _reason(
    history: _History,
    execution: mlmd.Execution,
    states: Mapping[str, str],
    records: Mapping[str, Kept | None],
) -> Reason:
    node = node_of(execution)
    if execution.last_known_state == mlmd.Execution.CACHED:
        maker = history.maker(execution)
        made_by = "" if maker is None else history.run_of(maker)
        return of_cached(node, states[node], made_by)
    before = history.before(execution)
    earlier = history.described(before) if before else None
    after = history.described(execution)
    return of_executed(node, states[node], earlier, after, records)


def _files(
    node: str, parameters: Sequence[Change], before: Kept | None, after: Kept | None
) -> Iterator[str]:
    """Yields the files behind a fingerprint that differs."""
    if before is None or after is None or not any(map(_is_fingerprint, parameters)):
        return
    if node == node_ids.EXAMPLE_GEN:
        files = list(data(before.made_from.data, after.made_from.data))
    else:
        records = before.made_from, after.made_from
        used = {path for each in records for path in each.used_by.get(node, ())}
        files = [each for each in code(before, after) if each.path in used]
    yield from (f"{each.path} {each.state}" for each in files)


def _is_fingerprint(change: Change) -> bool:
    return change.name.rpartition(".")[2] == _FINGERPRINT


def _text(
    parameters: Sequence[Change],
    inputs: Sequence[tuple[str, str]],
    files: Sequence[str],
) -> str:
    parts = [f"files: {abridged(files, _NAMED)}"] if files else []
    if not files and any(map(_is_fingerprint, parameters)):
        parts.append("its files, or what its code uses, changed")
    plain = [each for each in parameters if not _is_fingerprint(each)]
    texts = [
        f"{x.name} {shown(x.before, _WIDTH)} → {shown(x.after, _WIDTH)}" for x in plain
    ]
    if texts:
        parts.append(abridged(texts, _NAMED))
    makers = sorted({maker for _, maker in inputs if maker})
    if makers:
        parts.append(f"new outputs of {abridged(makers, _NAMED)}")
    return "; ".join(parts)


def _without_difference(before: Execution) -> str:
    if not before.has_ended:
        return "its execution before did not end"
    return (
        "nothing that it depends on changed: the run took nothing from the cache, or "
        "the outputs before were removed or damaged"
    )

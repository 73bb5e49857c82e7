"""Reads past runs from ML Metadata, without TensorFlow and TFX."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import errors
from strategos.components.data_files import span_checks
from strategos.components.errors import UserError
from strategos.components.evaluation.outcome import summary as verdicts
from strategos.components.push_targets.predictions import PREDICTIONS
from strategos.components.pusher import SLOT
from strategos.components.wording import nearest
from strategos.pipeline.history import warned
from strategos.pipeline.history.contexts import (
    named,
    pipelines,
    run_contexts,
    running,
    started,
    with_ids,
)
from strategos.pipeline.history.store import Store, properties, reads_store
from strategos.pipeline.root import RUN_CONTEXT, metadata, recent

_STATES = {
    mlmd.Execution.RUNNING: "running",
    mlmd.Execution.COMPLETE: "complete",
    mlmd.Execution.CACHED: "cached",
}
MOST_SLICES = 100  # of an evaluation, in the JSON of a run
# The state of the node that ended a run, by the run's outcome.
_ENDS = {"stopped": "stopped", "not blessed": "stopped", "interrupted": "interrupted"}


@dataclasses.dataclass(frozen=True)
class NodeRun:
    """One node of one run.

    Attributes:
      name: The node's id.
      state: complete, cached, running, failed, stopped (a gate) or interrupted.
      seconds: Duration; so far, if the node is still running.
      rows: Number of rows that the node wrote or measured, if known.
      cause: The printed error, if the node failed.
    """

    name: str
    state: str
    seconds: float | None = None
    rows: int | None = None
    cause: str | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a pipeline, as recorded in ML Metadata.

    Attributes:
      run_id: The run's id.
      pipeline: The pipeline's name.
      started: Unix seconds.
      finished: Unix seconds; None if the run is running or was killed.
      outcome: blessed, finished (nothing was evaluated), not blessed, stopped, failed,
        interrupted or running.
      blessed: The verdict on the model; None without one.
      metrics: Overall metrics of the model.
      nodes: Nodes in the order in which they started; empty in a history.
      pushed: Destination and version of the model, if it was pushed.
      predicted: Folder of the predictions that the run made, or found made, if any.
      slot: `canary` if it was pushed on trial, `approval` if it awaits a decision.
      failed_node: The node that ended the run, if one did.
      cause: The printed error of that node.
      error: The error by field: type, message, key, place, …; None for older runs.
      log: The log's path.
      config: The path of the YAML file.
      runner: The runner's name.
      host: The name of the machine.
      reason: Why `strategos retrain` started the run; None for other runs.
      trainer: The Trainer's record: strategy, reason, steps, history, …
      summary: The evaluation's `summary.json`; None in a history.
      gates: The checks of SpanValidator; empty in a history.
      types: The columns by inferred type, and doubtful ones; None if a schema declares
        the types, and in a history.
      warnings: The node, or "", and the text of each warning, also for cached nodes;
        empty in a history.
    """

    run_id: str
    pipeline: str
    started: float
    finished: float | None
    outcome: str
    blessed: bool | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    nodes: tuple[NodeRun, ...] = ()
    pushed: tuple[str, str] | None = None
    predicted: str | None = None
    slot: str = ""
    failed_node: str | None = None
    cause: str | None = None
    error: dict[str, Any] | None = None
    log: str | None = None
    config: str | None = None
    runner: str | None = None
    host: str | None = None
    reason: str | None = None
    trainer: dict[str, Any] = dataclasses.field(default_factory=dict)
    summary: dict[str, Any] | None = None
    gates: tuple[dict[str, Any], ...] = ()
    types: str | None = None
    warnings: tuple[tuple[str, str], ...] = ()

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None if the run has no end."""
        return None if self.finished is None else self.finished - self.started


@reads_store
def history(
    store: Store, pipeline: str | None = None, limit: int | None = None
) -> list[Run]:
    """Reads the runs of a root, newest first, without nodes and summaries.

    Args:
      store: The root's ML Metadata.
      pipeline: Only runs of this pipeline; None for all.
      limit: Largest number of runs; None for all.
    """
    pairs = named(store, recent.runs(store.mlmd))
    chosen = (pair for pair in pairs if pipeline in (None, pair[1]))
    listed = sorted(
        itertools.islice(chosen, limit), key=lambda pair: started(pair[0]), reverse=True
    )
    return _listed(store, listed)


@reads_store
def by_id(store: Store, contexts: Sequence[int]) -> list[Run]:
    """Reads runs as `history` does, in the given order.

    Args:
      store: The root's ML Metadata.
      contexts: Ids of the runs' contexts in ML Metadata.
    """
    return _listed(store, named(store, with_ids(store, contexts)))


def _listed(store: Store, pairs: Iterable[tuple[mlmd.Context, str]]) -> list[Run]:
    """The runs of contexts, each given with the name of its pipeline."""
    pairs = list(pairs)
    outputs = _outputs(store, [context for context, _ in pairs])
    current = running(store)
    return [
        _to_run(context, name, outputs[context.name], current)
        for context, name in pairs
    ]


@reads_store
def run(store: Store, run_id: str | None = None) -> Run:
    """Reads one run in full.

    Args:
      store: The root's ML Metadata.
      run_id: The run's id, or its beginning; None for the last run.

    Raises:
      UserError: No such run exists; the message names similar ids.
    """
    context = _find(store, run_id)
    executions = store.mlmd.get_executions_by_context(context.id)
    executions.sort(key=lambda execution: execution.id)
    ids = [execution.id for execution in executions]
    outputs = store.outputs_of(ids)
    artifacts = [artifact for id in ids for artifact in outputs.get(id, [])]
    pipeline = pipelines(store, [context])[context.name]
    result = _to_run(context, pipeline, artifacts, running(store))
    summary = _written(artifacts, "ModelEvaluation", verdicts.FILE)
    checked = _written(artifacts, "ExampleAnomalies", span_checks.FILE)
    rows = {id: rows_of(outputs.get(id, [])) for id in ids}
    nodes = {}
    for execution in executions:
        # The node's context would cost a pass over all runs: ML Metadata has no index.
        name = execution.type.rpartition(".")[2]  # `node_ids` are names of classes
        nodes[name] = _to_node(name, execution, rows[execution.id], result)
    done = {n for n, node in nodes.items() if node.state in ("complete", "cached")}
    return dataclasses.replace(
        result,
        nodes=tuple(nodes.values()),
        **facts(artifacts, summary, tuple(checked["checks"]) if checked else ()),
        warnings=warned.read(properties(context), artifacts, done, summary),
    )


def chosen(listed: Sequence[Run], run_id: str | None) -> Run:
    """Returns the run with an id, or its beginning; the first one for None.

    Args:
      listed: At least one run, the newest first.
      run_id: The id.

    Raises:
      UserError: None of them has it, or several do.
    """
    matching = [each for each in listed if each.run_id.startswith(run_id or "")]
    if len(matching) == 1 or (matching and not run_id):
        return matching[0]
    names = ", ".join(each.run_id for each in (matching or listed)[:3])
    which = "several ids start with that:" if matching else "the last ones are"
    raise UserError(f"run {run_id}: no such run; {which} {names}.")


def facts(
    artifacts: Sequence[mlmd.Artifact],
    summary: Mapping[str, Any] | None = None,
    gates: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    """The attributes of a `Run` that the artifacts of its nodes know.

    Args:
      artifacts: The outputs of the nodes, also of cached ones.
      summary: The evaluation's `summary.json`, if it can be read.
      gates: The checks of SpanValidator.
    """
    listed = _listed_facts(artifacts)
    return {
        **listed,
        "metrics": summary["overall"] if summary else listed["metrics"],
        "trainer": _trainer(artifacts),
        "summary": summary,
        "gates": gates,
        "types": _types(artifacts),
    }


def to_json(value: Run, *, slices: bool = False) -> dict[str, Any]:
    """Converts a run to JSON-able values, with its duration.

    Args:
      value: The run.
      slices: Whether the evaluation's summary has all slices and bounds, not at most
        `MOST_SLICES` of each.
    """
    summary = value.summary
    if summary and not slices:
        summary = verdicts.shortened(summary, MOST_SLICES)
    small = dataclasses.asdict(dataclasses.replace(value, summary=None))
    return small | {"summary": summary, "duration": value.duration}


def _find(store: Store, run_id: str | None) -> mlmd.Context:
    newest = next(recent.runs(store.mlmd), None)
    if newest is None:
        raise UserError("no runs yet. Start one with `strategos run pipeline.yaml`.")
    if run_id is None:
        return newest
    exact = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run_id)
    if exact is not None:
        return exact
    contexts = run_contexts(store)
    names = [context.name for context in contexts]
    begun = [name for name in names if name.startswith(run_id)]
    if len(begun) == 1:
        return contexts[names.index(begun[0])]
    near = begun[:3] or list(filter(None, [nearest(run_id, names)]))
    which = "the last ones are" if not near else "did you mean"
    if begun:
        which = "several ids start with that:"
    raise UserError(
        f"run {run_id}: no such run; {which} {', '.join(near or names[:3])}. "
        f"`strategos runs` lists them all.{metadata.removed_hint(store.root)}"
    )


def _outputs(
    store: Store, runs: Iterable[mlmd.Context]
) -> dict[str, list[mlmd.Artifact]]:
    """The output artifacts of each run, by run id."""
    executions = {
        run.name: [each.id for each in store.mlmd.get_executions_by_context(run.id)]
        for run in runs
    }
    made = store.outputs_of(id for ids in executions.values() for id in ids)
    return {
        run: [artifact for id in ids for artifact in made.get(id, ())]
        for run, ids in executions.items()
    }


def _to_run(
    context: mlmd.Context,
    pipeline: str,
    artifacts: Iterable[mlmd.Artifact],
    running: Collection[str],
) -> Run:
    facts = properties(context)
    interrupted = "running" if context.name in running else "interrupted"
    error = json.loads(facts["error"]) if facts.get("error") else None
    names = ("failed_node", "log", "config", "runner", "host", "reason")
    texts: dict[str, Any] = {name: facts.get(name) or None for name in names}
    return Run(
        run_id=context.name,
        pipeline=pipeline,
        started=started(context),
        finished=facts.get("finished"),
        outcome=facts.get("outcome") or interrupted,
        **_listed_facts(artifacts),
        cause=str(errors.from_json(error)) if error else facts.get("cause") or None,
        error=error,
        **texts,
    )


def _listed_facts(artifacts: Iterable[mlmd.Artifact]) -> dict[str, Any]:
    """The attributes of a `Run` in a history that the artifacts know."""
    by_type = {artifact.type: properties(artifact) for artifact in artifacts}
    verdict = by_type.get("ModelBlessing", {}).get("blessed")
    push = by_type.get("PushedModel", {})
    measured = by_type.get("ModelEvaluation", {})
    return {
        "blessed": None if verdict is None else bool(verdict),
        "metrics": {k: v for k, v in measured.items() if isinstance(v, float)},
        "pushed": (push["pushed_destination"], push.get("pushed_version", ""))
        if push.get("pushed")
        else None,
        "predicted": by_type.get("InferenceResult", {}).get(PREDICTIONS),
        "slot": push.get(SLOT, ""),
    }


def _to_node(
    name: str, execution: mlmd.Execution, rows: int | None, of: Run
) -> NodeRun:
    state = _STATES.get(execution.last_known_state, "failed")
    end = execution.last_update_time_since_epoch / 1000
    if state == "running" and of.outcome == "running":
        end = time.time()
    elif state in ("running", "failed"):
        state = _ENDS.get(of.outcome, "failed")
    return NodeRun(
        name=name,
        state=state,
        seconds=max(0.0, end - execution.create_time_since_epoch / 1000),
        rows=rows,
        cause=of.cause if name == of.failed_node else None,
    )


def _written(
    artifacts: Iterable[mlmd.Artifact], type: str, file: str
) -> dict[str, Any] | None:
    """The JSON file of an artifact of a type, if it can be read from this machine."""
    for artifact in artifacts:
        if artifact.type == type:
            with contextlib.suppress(OSError, ValueError):
                return json.loads(Path(artifact.uri, file).read_text())
    return None


def _types(artifacts: Iterable[mlmd.Artifact]) -> str | None:
    """The types of columns that ExampleGen inferred."""
    inferred = (properties(artifact).get("types") for artifact in artifacts)
    return next(filter(None, inferred), None)


def rows_of(outputs: Iterable[mlmd.Artifact]) -> int | None:
    """Number of rows that a node wrote or measured, by its outputs; None if unknown."""
    for artifact in outputs:
        key = "examples" if artifact.type == "ModelEvaluation" else "rows"
        rows = properties(artifact).get(key)
        if rows is not None:
            return int(rows)
    return None


def _trainer(artifacts: Iterable[mlmd.Artifact]) -> dict[str, Any]:
    """The Trainer's record on its model; `{}` for a model of other origin."""
    for artifact in artifacts:
        facts = properties(artifact)
        if artifact.type == "Model" and "strategy" in facts:
            facts.pop(warned.PROPERTY, None)
            for name in ("history", "evaluation", "phases"):
                with contextlib.suppress(KeyError, ValueError, TypeError):
                    facts[name] = json.loads(facts[name])
            return facts
    return {}

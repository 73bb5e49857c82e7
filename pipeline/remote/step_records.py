"""Reads the records of the steps of a run on Kubeflow Pipelines from its object store.

A step's record is at ROOT/PIPELINE/RUN/NODE/record, see `container.step_record`. A step
that KFP took from its cache has outputs of an earlier run, and no API names that run.
But a step that ran has recorded the URLs of its inputs, which lead to the records of
the steps that made them, and so on. If only `Resolve` ran, an earlier run with the same
answer of `Resolve` made all outputs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.container import mounts, step_record
from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, object_stores, storage
from strategos.pipeline.history import kubeflow, runs, warned
from strategos.pipeline.made_from import record as made_record
from strategos.pipeline.made_from.record import Kept

Json = dict[str, Any]

_END = f"/{step_record.OUTPUT}/{step_record.FILE}"
_DONE = ("complete", "cached")


def add_to(run: runs.Run, root: str) -> runs.Run:
    """Adds the records of the steps to a run that its service has described.

    Args:
      run: The run, with the states of its nodes.
      root: `kubeflow.root`.

    Raises:
      UserError: This machine cannot read the object store; or no step ran, so that
        nothing leads to the records.
    """
    records = _read(run, root)
    cached = any(node.state == "cached" for node in run.nodes)
    if cached and not records.keys() - {node_ids.RESOLVE}:
        raise UserError(
            "all steps came from the cache of Kubeflow Pipelines, and no earlier run "
            f"with the same data and settings has records below {root}: the metrics "
            "are in the table of that run"
        )
    return with_records(run, records)


def add_named(run: runs.Run, records: Mapping[str, str], root: str) -> runs.Run:
    """Adds the records of the steps, if the service names their URLs.

    Args:
      run: The run, with the states of its nodes.
      records: URL of the folder with the record, by node.
      root: `vertex.root`, for messages.

    Raises:
      UserError: This machine cannot read the object store.
    """

    def read(url: str) -> Json:
        return json.loads(storage.read(f"{url}/{step_record.FILE}"))

    try:
        contents = object_stores.each(read, records.values())
    except OSError as error:
        reason = object_stores.reason(error)
        raise _unreadable(root, reason, "vertex.root") from error
    return with_records(run, dict(zip(records, contents, strict=True)))


def made(records: Mapping[str, Json]) -> dict[str, list[mlmd.Artifact]]:
    """The outputs of steps as ML Metadata has them, by node.

    Args:
      records: The records, by node.
    """
    return {name: _artifacts(record) for name, record in records.items()}


def with_records(run: runs.Run, records: Mapping[str, Json]) -> runs.Run:
    """The run with the facts of its records.

    Args:
      run: The run, with its nodes.
      records: The records, by node.
    """
    outputs = made(records)
    artifacts = [each for name in records for each in outputs[name]]
    summary = _content(records, "ModelEvaluation")
    checks = _content(records, "ExampleAnomalies") or {}
    lines = {name: record["warnings"] for name, record in records.items()}
    kept = {warned.PROPERTY: json.dumps(lines)}
    nodes = tuple(
        dataclasses.replace(each, rows=runs.rows_of(outputs.get(each.name, ())))
        for each in run.nodes
    )
    return dataclasses.replace(
        run,
        nodes=nodes,
        **runs.facts(artifacts, summary, tuple(checks.get("checks", ()))),
        warnings=warned.read(kept, (), (), summary),
    )


def _read(run: runs.Run, root: str) -> dict[str, Json]:
    """The existing records by node, in the order of the run's nodes."""
    return {node: record for node, (_, record) in found(run, root).items()}


def found(run: runs.Run, root: str) -> dict[str, tuple[str, Json]]:
    """The existing records by node, each with the id of the run that wrote it.

    Args:
      run: The run, with the states of its nodes.
      root: `kubeflow.root`.

    Returns:
      In the order of the run's nodes; of a node from the cache, the record of the
      earlier run that made its outputs.

    Raises:
      UserError: This machine cannot read the object store.
    """
    base = f"{mounts.opened_by_workers(root)}/{run.pipeline}"
    _check(root)
    done = [node.name for node in run.nodes if node.state in _DONE]
    ran = [node.name for node in run.nodes if node.state == "complete"]
    by_node: dict[str, tuple[str, Json]] = {}
    level = [(run.run_id, name) for name in ran]
    try:
        while level:
            records = object_stores.each(lambda of: _record(base, *of), level)
            new = {
                name: (run_id, record)
                for (run_id, name), record in zip(level, records, strict=True)
                if record is not None
            }
            by_node |= new
            read = [record for _, record in new.values()]
            level = sorted(_makers(read, base, set(done) - by_node.keys()))
            if not level and by_node.keys() == {node_ids.RESOLVE}:
                (_, resolved) = by_node[node_ids.RESOLVE]
                level = _equal_run(base, run.run_id, resolved, done)
    except OSError as error:
        raise _unreadable(root, object_stores.reason(error)) from error
    return {name: by_node[name] for name in done if name in by_node}


def _record(base: str, run_id: str, node: str) -> Json | None:
    url = _url(base, run_id, node)
    return json.loads(storage.read(url)) if url else None


def _url(base: str, run_id: str, node: str) -> str | None:
    """The URL of the record of a step; newer KFP has one more folder in it."""
    folder = f"{base}/{run_id}/{node}"
    for info in listing.objects(folder):
        if info.path.endswith(_END):
            return f"{folder.partition('://')[0]}://{info.path}"
    return None


def _equal_run(
    base: str, run_id: str, resolved: Json, done: Collection[str]
) -> list[tuple[str, str]]:
    """(run, node) of the newest other run that had the same answer and made outputs."""
    steps = _steps(base)
    newest = sorted(steps, key=lambda run: max(steps[run].values()), reverse=True)
    for run in newest:
        nodes = steps[run].keys() & set(done) - {node_ids.RESOLVE}
        if run != run_id and nodes and node_ids.RESOLVE in steps[run]:
            record = _record(base, run, node_ids.RESOLVE) or {}
            if record.get("answer") == resolved["answer"]:
                return [(run, node) for node in sorted(nodes)]
    return []


def _steps(base: str) -> dict[str, dict[str, float]]:
    """By run and node below a URL, the time of each record in Unix seconds."""
    begin = object_stores.path_of(base)
    times: dict[str, dict[str, float]] = {}
    for info in listing.objects(base):
        if info.path.endswith(_END):
            run, node = info.path.removeprefix(f"{begin}/").split("/")[:2]
            times.setdefault(run, {})[node] = info.mtime.timestamp()
    return times


def kept(root: str, pipeline: str, run_id: str) -> Kept:
    """Reads the record of a run's settings, code, data and stack.

    Args:
      root: `kubeflow.root`.
      pipeline: The pipeline's name.
      run_id: The run's id.

    Raises:
      UserError: This machine cannot read the object store, or the run has no such
        record.
    """
    _check(root)
    base = f"{mounts.opened_by_workers(root)}/{pipeline}"
    try:
        url = _url(base, run_id, node_ids.RESOLVE) or ""
        made = json.loads(storage.read(url)).get("made_from") if url else None
    except OSError as error:
        raise _unreadable(root, object_stores.reason(error)) from error
    if not made:
        raise UserError(
            f"run {run_id}: no record of its settings and code below {root}: an "
            "earlier version of Strategos compiled it"
        )
    contents = f"{url.removesuffix(step_record.FILE)}{step_record.CONTENTS}"
    return Kept(run_id, made_record.parsed(made, run_id), contents)


def before(run: runs.Run, root: str) -> dict[str, tuple[str, Json]]:
    """The record of each node's last execution before a run, and the run that wrote it.

    Args:
      run: The run, with its nodes.
      root: `kubeflow.root`.

    Returns:
      By node, for those of the run that ran and had run before, the id of the earlier
      run and its record.

    Raises:
      UserError: This machine cannot read the object store.
    """
    _check(root)
    base = f"{mounts.opened_by_workers(root)}/{run.pipeline}"
    try:
        steps = _steps(base)
        earlier = {}
        for node, time in steps.get(run.run_id, {}).items():
            times = {other: steps[other].get(node, time) for other in steps}
            past = [other for other in times if times[other] < time]
            if past:
                earlier[node] = max(past, key=times.__getitem__)
        read = object_stores.each(
            lambda node: _record(base, earlier[node], node), list(earlier)
        )
    except OSError as error:
        raise _unreadable(root, object_stores.reason(error)) from error
    return {
        node: (earlier[node], record)
        for node, record in zip(earlier, read, strict=True)
        if record
    }


def history(
    root: str, pipeline: str, limit: int | None = None, named: str = ""
) -> list[runs.Run]:
    """Reads the runs of a pipeline that have left records, the newest first.

    The records do not say why a run ended before its last step, or that it goes on:
    the outcome of such a run is `unfinished`.

    Args:
      root: `kubeflow.root`.
      pipeline: The pipeline's name.
      limit: Largest number of runs; None for all.
      named: The beginning of an id: if runs have it, no other run is read.

    Raises:
      UserError: This machine cannot read the object store.
    """
    _check(root)
    try:
        steps = _steps(f"{mounts.opened_by_workers(root)}/{pipeline}")
    except OSError as error:
        raise _unreadable(root, object_stores.reason(error)) from error
    newest = sorted(steps, key=lambda run: min(steps[run].values()), reverse=True)
    chosen = [run for run in newest if run.startswith(named)] or newest
    return [_recorded(root, pipeline, run, steps[run]) for run in chosen[:limit]]


def _recorded(
    root: str, pipeline: str, run_id: str, times: Mapping[str, float]
) -> runs.Run:
    ran = sorted(times, key=times.__getitem__)
    others = [name for name in node_ids.ALL if name not in times]
    states = {**dict.fromkeys(others, "cached"), **dict.fromkeys(ran, "complete")}
    run = runs.Run(
        *(run_id, pipeline, min(times.values()), max(times.values()), "unfinished"),
        nodes=tuple(runs.NodeRun(*each) for each in states.items()),
        runner="kubeflow",
    )
    records = {} if ran == [node_ids.RESOLVE] else _read(run, root)
    kept = [node for node in run.nodes if node.name in {*records, *ran}]
    run = with_records(dataclasses.replace(run, nodes=tuple(kept)), records)
    if node_ids.PUSHER in ran:
        outcome = "finished" if run.blessed is None else "blessed"
        return dataclasses.replace(run, outcome=outcome)
    outcome = "not blessed" if run.blessed is False else run.outcome
    return dataclasses.replace(run, outcome=outcome)


def _makers(
    records: Collection[Json], base: str, wanted: Collection[str]
) -> set[tuple[str, str]]:
    """(run, node) of the steps with outputs that other steps have read."""
    made = {path for record in records for path in _inputs(record, base)}
    makers = {(path.split("/")[0], path.split("/")[1]) for path in made}
    return {(run, node) for run, node in makers if node in wanted}


def _inputs(record: Json, base: str) -> Iterator[str]:
    """Yields RUN/NODE/…/OUTPUT of each input of a step that another step made."""
    for url in map(mounts.opened_by_workers, record["inputs"]):
        if url.startswith(f"{base}/"):
            yield url.removeprefix(f"{base}/")


def inputs(record: Json, root: str, pipeline: str) -> list[tuple[str, str, str]]:
    """The inputs of a step that other steps made.

    Args:
      record: The step's record.
      root: `kubeflow.root`.
      pipeline: The pipeline's name.

    Returns:
      The run, the node and the name of each output.
    """
    base = f"{mounts.opened_by_workers(root)}/{pipeline}"
    parts = (path.split("/") for path in _inputs(record, base))
    return [(run, node, name) for run, node, *_, name in parts]


def _artifacts(record: Json) -> list[mlmd.Artifact]:
    """The outputs of a step as ML Metadata has them."""
    made = []
    for output in record["outputs"]:
        artifact = mlmd.Artifact(type=output["type"], uri=output["uri"])
        for name, value in output["properties"].items():
            if isinstance(value, (dict, list)):  # as executors record them, too
                value = json.dumps(value)
            kind = "string_value" if isinstance(value, str) else "double_value"
            setattr(artifact.custom_properties[name], kind, value)
        made.append(kubeflow.restored(artifact))
    return made


def _content(records: Mapping[str, Json], kind: str) -> Any:
    """The content of the file of an artifact; None without one."""
    outputs = (each for record in records.values() for each in record["outputs"])
    contents = (each.get("content") for each in outputs if each["type"] == kind)
    return next(filter(None, contents), None)


def _check(root: str) -> None:
    if root.startswith("minio://") and not os.environ.get("S3_ENDPOINT"):
        raise _unreadable(root, "S3_ENDPOINT does not name its server")


def _unreadable(root: str, reason: str, key: str = "kubeflow.root") -> UserError:
    where = filesystems.credentials(mounts.opened_by_workers(root))
    return UserError(
        "the metrics, the verdict and the pushed version of the run are not shown, as "
        f"this machine cannot read the object store: {reason}",
        key=key,
        received=root,
        remedy=f"Credentials are taken from {where}.",
    )

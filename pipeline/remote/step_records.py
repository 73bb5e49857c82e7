"""What the steps of a run on Kubeflow Pipelines have recorded, from its object store.

A step's record is at ROOT/PIPELINE/RUN/NODE/record, see `container.step_record`. The
outputs of a step that KFP took from its cache are those of an earlier run, which no API
names. But a step that ran has recorded its inputs, whose URLs lead to the records of
the steps that made them, and from there on.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.container import mounts, step_record
from strategos.components.errors import UserError
from strategos.components.files import filesystems, object_stores, storage
from strategos.pipeline.history import kubeflow, runs, warned

Json = dict[str, Any]

_DONE = ("complete", "cached")


def add_to(run: runs.Run, root: str) -> runs.Run:
    """Adds what the steps have recorded to a run that its service has described.

    Args:
      run: The run, with the states of its nodes.
      root: `kubeflow.root`.

    Raises:
      UserError: This machine cannot read the object store; or no step ran, so that
        nothing leads to the records.
    """
    found = _read(run, root)
    if not found and any(node.state == "cached" for node in run.nodes):
        raise UserError(
            "all steps came from the cache of Kubeflow Pipelines, which does not say "
            "from which run: the metrics are in the table of that run"
        )
    made = {name: _artifacts(record) for name, record in found.items()}
    artifacts = [each for name in found for each in made[name]]
    summary = _content(found, "ModelEvaluation")
    checks = _content(found, "ExampleAnomalies") or {}
    lines = {name: record["warnings"] for name, record in found.items()}
    kept = {warned.PROPERTY: json.dumps(lines)}
    nodes = tuple(
        dataclasses.replace(each, rows=runs.rows_of(made.get(each.name, ())))
        for each in run.nodes
    )
    return dataclasses.replace(
        run,
        nodes=nodes,
        **runs.facts(artifacts, summary, tuple(checks.get("checks", ()))),
        warnings=warned.read(kept, (), (), summary),
    )


def _read(run: runs.Run, root: str) -> dict[str, Json]:
    """The records by node, in the order of the run's nodes; of those that are there."""
    base = f"{mounts.opened_by_workers(root)}/{run.pipeline}"
    _check(root)
    done = [node.name for node in run.nodes if node.state in _DONE]
    ran = [node.name for node in run.nodes if node.state == "complete"]
    found: dict[str, Json] = {}
    level = [(run.run_id, name) for name in ran]
    try:
        while level:
            records = storage.each(lambda of: _record(base, *of), level)
            new = {
                name: record
                for (_, name), record in zip(level, records, strict=True)
                if record is not None
            }
            found |= new
            level = sorted(_makers(new, base, set(done) - found.keys()))
    except OSError as error:
        raise _unreadable(root, object_stores.reason(error)) from error
    return {name: found[name] for name in done if name in found}


def _record(base: str, run_id: str, node: str) -> Json | None:
    """The record of a step; newer KFP has one more folder in the URL."""
    folder = f"{base}/{run_id}/{node}"
    end = f"/{step_record.OUTPUT}/{step_record.FILE}"
    for info in storage.objects(folder):
        if info.path.endswith(end):
            scheme = folder.partition("://")[0]
            return json.loads(storage.read(f"{scheme}://{info.path}"))
    return None


def _makers(
    records: Mapping[str, Json], base: str, wanted: Collection[str]
) -> set[tuple[str, str]]:
    """(run, node) of the steps whose outputs others have read."""
    urls = (url for record in records.values() for url in record["inputs"])
    parts = (
        mounts.opened_by_workers(url).removeprefix(f"{base}/").split("/")
        for url in urls
        if mounts.opened_by_workers(url).startswith(f"{base}/")
    )
    return {(run, node) for run, node, *_ in parts if node in wanted}


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


def _unreadable(root: str, reason: str) -> UserError:
    where = filesystems.credentials(mounts.opened_by_workers(root))
    return UserError(
        "the metrics, the verdict and the pushed version of the run are not shown, as "
        f"this machine cannot read the object store: {reason}",
        key="kubeflow.root",
        received=root,
        remedy=f"Credentials are taken from {where}.",
    )

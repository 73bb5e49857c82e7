"""The program of the steps that `plan/cluster/reporting.py` adds: writes the report.

    python -m strategos.pipeline.remote.report_step --request JSON --input JSON

The report is drawn from the records of the steps before this one and from the files of
some of their outputs, which the launcher has copied to this container. `ModelReport`
writes it beside the pushed model, too. A report that cannot be drawn is a page that
says why: the run goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import json
import os
import posixpath
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strategos.components import node_ids
from strategos.components.container import mounts, step_record
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.pipeline.history.lineage import LineageStep, MadeArtifact, decoded
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.made_from import stack
from strategos.pipeline.made_from.record import MadeFrom
from strategos.pipeline.plan.cluster import resolve
from strategos.pipeline.plan.cluster.reporting import OUTPUT, ReportRequest
from strategos.pipeline.remote import step_records
from strategos.pipeline.report import writing
from strategos.pipeline.report.record import Record

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the step; returns its exit code.

    Args:
      arguments: By default `sys.argv[1:]`.
    """
    parser = argparse.ArgumentParser(prog=node_ids.RUN_REPORT)
    parser.add_argument("--request", required=True, type=json.loads)
    parser.add_argument("--input", required=True, type=json.loads)
    options = parser.parse_args(arguments)
    request = ReportRequest(**options.request)
    ((artifact,),) = (
        each["artifacts"]
        for name, each in options.input["outputs"]["artifacts"].items()
        if name == OUTPUT
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            read = _record(request, options.input, artifact["uri"], folder)
            page = writing.html(read)
            if request.node == node_ids.MODEL_REPORT:
                _write_beside(read)
        except Exception as error:  # the run does not depend on its report
            problem = f"the report cannot be drawn: {type(error).__name__}: {error}"
            print(problem, file=sys.stderr)
            page = f"<!doctype html><title>Report</title><p>{html.escape(problem)}</p>"
    storage.write(_seen_here(request.target, artifact["uri"]), page)
    return 0


def _write_beside(read: Record) -> None:
    try:
        writing.write_beside(read)
    except UserError as error:
        print(f"no report beside the pushed model: {error}", file=sys.stderr)


def _seen_here(target: str, uri: str) -> str:
    """The path or URL by which this container opens an artifact."""
    return mounts.Mounts().local(uri) if target == "kubeflow" else uri


def _record(request: ReportRequest, call: Json, output: str, folder: str) -> Record:
    """The record to draw the report from.

    Args:
      request: From the compiler.
      call: The launcher's ExecutorInput.
      output: URI of the page.
      folder: A folder for copies of files.
    """
    records: dict[str, Json] = {}
    places: dict[str, str] = {}  # of artifacts on this machine, by URI
    for name, (node, output_name) in request.inputs.items():
        (artifact,) = call["inputs"]["artifacts"][name]["artifacts"]
        path = _copied(request.target, artifact["uri"], os.path.join(folder, name))
        if output_name == step_record.OUTPUT:
            text = Path(path, step_record.FILE).read_text()
            records[node] = json.loads(text)
        else:
            places[artifact["uri"]] = path
    made = step_records.made(records)
    steps = tuple(
        LineageStep(
            *(node, number, "", False, 0.0, 0.0, {}),
            outputs=tuple(
                MadeArtifact(
                    *(0, posixpath.basename(each.uri), each.type),
                    uri=places.get(each.uri, each.uri),
                    properties=decoded(each),
                )
                for each in made[node]
            ),
            inputs=(),
        )
        for number, node in enumerate(records)
    )
    made_from = _made_from(call["inputs"]["parameterValues"][resolve.SETTINGS])
    run = _run(request, output, list(records), Path(made_from.yaml).name)
    run = step_records.with_records(run, records)
    outcome = "finished"
    if run.blessed is not None:
        outcome = "blessed" if run.blessed else "not blessed"
    run = dataclasses.replace(run, outcome=outcome)
    return Record(run, steps, None, made_from)


def _copied(target: str, uri: str, folder: str) -> str:
    """A local folder with the files of an artifact."""
    if target == "kubeflow":
        return mounts.Mounts().local(uri)
    os.makedirs(folder)
    storage.get(uri, folder)
    return folder


def _run(request: ReportRequest, output: str, nodes: Sequence[str], yaml: str) -> Run:
    # ROOT/PIPELINE/RUN/… on Kubeflow, ROOT/PROJECT/RUN/STEP/report on Vertex AI
    run_id = output.partition(f"/{request.pipeline}/")[2].partition("/")[0]
    return Run(
        run_id=run_id or output.split("/")[-3],
        pipeline=request.pipeline,
        started=time.time(),
        finished=None,
        outcome="finished",
        nodes=tuple(NodeRun(node, "complete") for node in nodes),
        config=yaml,
        runner=request.target,
    )


def _made_from(settings: str) -> MadeFrom:
    return MadeFrom(
        **json.loads(settings),
        code={},
        used_by={},
        data=(),
        weights="",
        stack=stack.of_this_machine(),
    )


if __name__ == "__main__":
    sys.exit(main())

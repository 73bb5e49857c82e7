"""The steps of a compiled pipeline that write the report of the run, as a page.

`RunReport` follows the Evaluator, beside the gate: a model that is not blessed has a
report, too. `ModelReport` follows the Pusher, and also writes the report beside the
pushed model, as a local run does: a report that fails then stops no push. The output of
each is an artifact of the type HTML, which the pages of Kubeflow Pipelines and Vertex
AI show. Both take the settings of the run from `Resolve`, as a parameter: its record, a
new artifact in each run, would keep them out of the cache. Their program is
`pipeline/remote/report_step.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids
from strategos.components.container import step_record
from strategos.pipeline.plan.cluster import resolve

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

Json = dict[str, Any]

OUTPUT = "report"
"""Name of the output: the page."""

_COMMAND = ["python", "-m", "strategos.pipeline.remote.report_step"]
_HTML = {"artifactType": {"schemaTitle": "system.HTML", "schemaVersion": "0.0.1"}}
_READ = {
    node_ids.STATISTICS_GEN: "statistics",
    node_ids.DETAILED_STATISTICS: "statistics",
    node_ids.TRANSFORMED_STATISTICS: "statistics",
    node_ids.EXAMPLE_VALIDATOR: "anomalies",
    node_ids.EVALUATOR: "evaluation",
}
"""Outputs with files for a part of the report that records do not have."""


@dataclasses.dataclass(frozen=True)
class ReportRequest:
    """The request of the compiler to a step that writes a report.

    Attributes:
      node: `RunReport` or `ModelReport`.
      target: `kubeflow` or `vertex`.
      pipeline: The pipeline's name.
      inputs: The node and its output behind each input of the step.
    """

    node: str
    target: str
    pipeline: str
    inputs: dict[str, tuple[str, str]]


def add_to(spec: Json, config: Config, target: str, image: str) -> None:
    """Adds the steps to a pipeline spec in place.

    Args:
      spec: The pipeline spec; its steps have their records as outputs.
      config: The settings, with the paths of steps.
      target: `kubeflow` or `vertex`.
      image: The container image.
    """
    last = {node_ids.RUN_REPORT: node_ids.EVALUATOR}
    if config.pusher:
        last[node_ids.MODEL_REPORT] = node_ids.PUSHER
    for name, node in last.items():
        inputs = {f"{x}-{output}": (x, output) for x, output in _inputs(spec, node)}
        _add(spec, ReportRequest(name, target, config.name, inputs), image)


def _add(spec: Json, request: ReportRequest, image: str) -> None:
    text = json.dumps(dataclasses.asdict(request), sort_keys=True)
    spec["components"][request.node] = {
        "executorLabel": f"{request.node}_executor",
        "inputDefinitions": {
            "parameters": {resolve.SETTINGS: {"parameterType": "STRING"}},
            "artifacts": {
                name: spec["components"][node]["outputDefinitions"]["artifacts"][output]
                for name, (node, output) in request.inputs.items()
            },
        },
        "outputDefinitions": {"artifacts": {OUTPUT: _HTML}},
    }
    spec["root"]["dag"]["tasks"][request.node] = {
        "componentRef": {"name": request.node},
        "inputs": {
            "parameters": {resolve.SETTINGS: resolve.output(resolve.SETTINGS)},
            "artifacts": {
                name: {
                    "taskOutputArtifact": {
                        "producerTask": node,
                        "outputArtifactKey": output,
                    }
                }
                for name, (node, output) in request.inputs.items()
            },
        },
        "dependentTasks": sorted(
            {resolve.NODE, *(node for node, _ in request.inputs.values())}
        ),
        "taskInfo": {"name": request.node},
    }
    spec["deploymentSpec"]["executors"][f"{request.node}_executor"] = {
        "container": {
            "image": image,
            "command": _COMMAND,
            "args": ["--request", text, "--input", "{{$}}"],
        }
    }


def _inputs(spec: Json, last: str) -> Iterator[tuple[str, str]]:
    """(node, output) of all that a report is drawn from, in the order of the graph.

    Args:
      spec: The pipeline spec.
      last: The node after which the step runs, if the pipeline has it.
    """
    for node in node_ids.ALL:
        made = spec["components"].get(node, {}).get("outputDefinitions", {})
        artifacts = made.get("artifacts", {})
        if step_record.OUTPUT in artifacts:  # a user's container has none
            yield node, step_record.OUTPUT
        if (output := _READ.get(node)) in artifacts:
            yield node, str(output)
        if node == last and artifacts:
            return

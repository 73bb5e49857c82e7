"""Compiles the same graph to a file for Kubeflow Pipelines or Vertex AI.

Open-source KFP 2 reads a bare PipelineSpec of schema 2.1.0; Vertex reads TFX's
PipelineJob, which contains one. Neither runs a Resolver or a custom driver from a
compiled spec, and the graph has none: spans and the baseline are runtime parameters.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids
from strategos.components.errors import BadInputError, Place

if TYPE_CHECKING:
    from strategos.components.example_gen.listing import Listing
    from strategos.pipeline.config.sections import Config

WORKLOAD = "/workload"
"""The folder of the build context in an image, see `kubeflow/Dockerfile`."""

_ENTRYPOINT = ["python", "-m", "tfx.orchestration.kubeflow.v2.container"]
_ENTRYPOINT[-1] += ".kubeflow_v2_run_executor"


def compile_to(config: Config, data: Listing, target: str, output: Path) -> None:
    """Writes the pipeline of `config` for `target` to the file `output`.

    Args:
      config: The effective settings, with a section named as the target.
      data: The files that `data.examples` names here.
      target: `kubeflow` or `vertex`.
      output: A JSON file; replaced as a whole.

    Raises:
      BadInputError: The section is missing, or the model would be pushed into a
        container.
    """
    section = getattr(config, target)
    if section is None:
        raise BadInputError(
            "the required section is missing",
            key=target,
            place=Place(str(config.path)),
            remedy=f"Add `{target}: {{image: …, root: …}}`: the image to run in and "
            "where artifacts are kept.",
        )
    job = _compile(config, data, section)
    document = job if target == "vertex" else job["pipelineSpec"]
    aside = output.with_name(f".{output.name}.tmp")
    aside.write_text(json.dumps(document, indent=1, sort_keys=True))
    aside.replace(output)


def _in_image(config: Config, section: Any) -> Config:
    """Converts the settings to paths in a container, with the cluster's root."""

    def in_image(path: str) -> str:
        if not Path(path).is_relative_to(section.context):
            return path  # remote, or mounted at the same place in every step
        return str(Path(WORKLOAD) / Path(path).relative_to(section.context))

    weights, pusher = config.trainer.warm_start, config.pusher
    if pusher and in_image(pusher.to) != pusher.to:
        raise config.problem(
            "pusher.to",
            "which would be inside a container and deleted with it",
            received=str(pusher.to),
            remedy="Name a folder that is mounted in every step.",
        )
    moved = {
        "data": config.data.model_copy(
            update={"examples": in_image(config.data.examples)}
        ),
        "schema_": config.schema_.model_copy(
            update={"file": config.schema_.file and in_image(config.schema_.file)}
        ),
        "trainer": config.trainer.model_copy(
            update={"warm_start": weights and in_image(weights)}
        ),
        "run": config.run.model_copy(update={"root": section.root}),
    }
    copy = config.model_copy(update=moved)
    copy._path = Path(in_image(str(config.path)))
    return copy


def _compile(config: Config, data: Listing, section: Any) -> dict[str, Any]:
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

    from strategos.pipeline.plan import caching, graph, planning

    in_image = _in_image(config, section)
    defaults = planning.parameters(config, data)  # from the data on this machine
    defaults["warm_start"] = in_image.runtime_parameters()["warm_start"]
    fingerprints = caching.Fingerprints.of(config)
    pipeline = graph.build(in_image, fingerprints, defaults)
    runner_config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image=section.image,
        default_commands=_ENTRYPOINT,
        use_pipeline_spec_2_1=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        kubeflow_v2_dag_runner.KubeflowV2DagRunner(
            config=runner_config, output_dir=folder, output_filename="job.json"
        ).run(pipeline)
        job = json.loads(Path(folder, "job.json").read_text())
    spec = job["pipelineSpec"]
    _set_defaults(spec, defaults)
    _set_environment(
        spec, node_ids.TRAINER, config.trainer.operation().to_environment()
    )
    for node in spec["components"].keys() & node_ids.ON_ENGINE:
        _set_environment(spec, node, config.run.engine.settings().to_environment())
    return job


def _set_defaults(spec: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Sets the defaults of the runtime parameters, which TFX omits in schema 2.1."""
    for name, parameter in spec["root"]["inputDefinitions"]["parameters"].items():
        parameter |= {"defaultValue": defaults[name], "isOptional": True}


def _set_environment(
    spec: dict[str, Any], node: str, variables: Mapping[str, str]
) -> None:
    """Sets environment variables of a node: how it works, which is no parameter."""
    label = spec["components"][node]["executorLabel"]
    container = spec["deploymentSpec"]["executors"][label]["container"]
    container["env"] = [{"name": k, "value": v} for k, v in variables.items()]

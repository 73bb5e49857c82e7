"""Compiling for Kubeflow Pipelines and Vertex AI: the same graph, written as a file.

Open-source KFP 2 wants a bare PipelineSpec of schema 2.1.0; Vertex takes TFX's
PipelineJob around it. Neither runs a Resolver or a custom driver from a compiled spec,
and the graph has none: spans and the baseline are runtime parameters.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components.errors import BadInputError

if TYPE_CHECKING:
    from strategos.pipeline.config import Config

WORKLOAD = "/workload"
"""Where an image holds the files of the build context, see `kubeflow/Dockerfile`."""

_ENTRYPOINT = ["python", "-m", "tfx.orchestration.kubeflow.v2.container"]
_ENTRYPOINT[-1] += ".kubeflow_v2_run_executor"


def compile_to(config: Config, target: str, output: Path) -> None:
    """Writes the pipeline of `config` for `target` to the file `output`.

    Args:
      config: The effective settings, with a section named as the target.
      target: `kubeflow` or `vertex`.
      output: A JSON file; replaced as a whole.

    Raises:
      BadInputError: The section is missing, or a file lies outside the image.
    """
    section = getattr(config, target)
    if section is None:
        raise BadInputError(
            f"{config.path}: has no `{target}` section. Add `{target}: {{image: …, "
            "root: …}}`: the image to run in and where artifacts are kept."
        )
    job = _compile(config, section)
    document = job if target == "vertex" else job["pipelineSpec"]
    aside = output.with_name(f".{output.name}.tmp")
    aside.write_text(json.dumps(document, indent=1, sort_keys=True))
    aside.replace(output)


def _compile(config: Config, section: Any) -> dict[str, Any]:
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

    from strategos.pipeline import graph, orchestration

    defaults = orchestration.parameters(config)
    fingerprints = graph.Fingerprints.of(config)
    there = config.relocated(Path(section.context), Path(WORKLOAD), section.root)
    pipeline = graph.build(there, fingerprints, defaults)
    runner_config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image=section.image,
        default_commands=_ENTRYPOINT,
        use_pipeline_spec_2_1=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        kubeflow_v2_dag_runner.KubeflowV2DagRunner(
            config=runner_config, output_dir=folder, output_filename="job.json"
        ).run(pipeline)
        return json.loads(Path(folder, "job.json").read_text())

"""Compiles the graph to a file for Kubeflow Pipelines or Vertex AI.

Open-source KFP 2 reads a bare PipelineSpec of schema 2.1.0; Vertex reads TFX's
PipelineJob, which contains one. Neither runs a Resolver or a custom driver from a
compiled spec, and the graph has none. The first step, `Resolve`, is an ordinary
container: it makes the decisions of `strategos run` before a run, e.g. which spans to
read. The other steps take its outputs as parameters.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from strategos.components import node_ids, runtime_parameters
from strategos.components.container import ENTRY, step_record
from strategos.components.files import commit
from strategos.components.pusher import PUSHER_VARIABLE, WEIGHTS_VARIABLE
from strategos.components.runtime_parameters import NOTHING
from strategos.components.user_code import archive
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.pipeline.config.cluster.sections import Kubeflow, Vertex
from strategos.pipeline.config.sections import Config
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.made_from import making, record
from strategos.pipeline.plan import caching, graph, tfx_adapter
from strategos.pipeline.plan.cluster import paths, reporting, resolve, steps, uploads

Json = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes equal parts without YAML aliases: not every reader follows aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """See SafeDumper."""
        return True


def compile_to(
    config: Config,
    target: str,
    output: Path,
    *,
    without_baseline: bool = False,
    take_over: str | None = None,
) -> None:
    """Writes the pipeline of `config` for `target` to a file.

    Uploads the user's modules first, if the target's section has `modules`.

    Args:
      config: The effective settings, already checked for the target.
      target: `kubeflow` (YAML: the pipeline spec and, if a step needs one, the platform
        spec) or `vertex` (JSON: the pipeline job).
      output: The file; replaced as a whole.
      without_baseline: As in `planning.RunOptions`.
      take_over: As in `planning.RunOptions`.

    Raises:
      BadInputError: The modules cannot be uploaded.
    """
    section, modules = getattr(config, target), uploads.upload(config, target)
    baseline = NOTHING if without_baseline else resolve.PRODUCTION
    urls = sorted(set(modules.values()))
    job = _compile(config, section, target, baseline, take_over, urls)
    for node, url in modules.items():
        _set_environment(job["pipelineSpec"], node, {archive.VARIABLE: url})
    if target == "vertex":
        text = json.dumps(job, indent=1, sort_keys=True) + "\n"
    else:
        spec = job["pipelineSpec"]
        platform = steps.platform(spec, section)
        documents = [spec, platform] if platform else [spec]
        text = yaml.dump_all(documents, Dumper=_Dumper, width=1000)
    commit.write(output, text)


def _compile(
    config: Config,
    section: Kubeflow | Vertex,
    target: str,
    baseline: str,
    take_over: str | None,
    modules: Sequence[str],
) -> Json:
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

    fingerprints = caching.Fingerprints.of(config)
    moved = paths.moved(config, section)
    names = (each.name for each in runtime_parameters.TABLE)
    defaults = {**dict.fromkeys(names, NOTHING), **moved.runtime_parameters()}
    defaults["baseline"] = baseline
    if config.trainer.warm_start == LATEST:
        defaults["warm_start"] = LATEST
    key = caching.candidate_key(
        tfx_adapter.compile_ir(graph.build(moved, fingerprints, defaults, local=config))
    )
    runner_config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image=section.image,
        default_commands=[*ENTRY, target],
        use_pipeline_spec_2_1=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        kubeflow_v2_dag_runner.KubeflowV2DagRunner(
            config=runner_config, output_dir=folder, output_filename="job.json"
        ).run(graph.build(moved, fingerprints, defaults, local=config))
        job = json.loads(Path(folder, "job.json").read_text())
    spec = job["pipelineSpec"]
    spec["defaultPipelineRoot"] = section.root
    _record_steps(spec)
    made = record.to_json(making.of_settings(moved, making.code(config)))
    question = dataclasses.replace(
        resolve.ResolveRequest.of(moved, key, take_over),
        made_from=made,
        query=_query(config, section),
        modules=modules,
    )
    resolve.add_to(spec, question, defaults, section.image)
    # On Vertex AI nothing would read it: its API names the records of all steps of a
    # run, and says itself which are from its cache.
    if target == "kubeflow":
        _record_steps(spec)
    if config.run.report:
        reporting.add_to(spec, moved, target, section.image)
    operation, engine = moved.operation(), config.run.engine.to_engine()
    here = WorkloadPaths(folder=str(moved.folder), plugins=config.plugins)
    for node in spec["components"]:
        works = node in node_ids.ON_ENGINE
        variables = engine.to_environment() if works else {}
        if config.plugins or (works and engine.runner != "direct"):
            variables |= here.to_environment()  # modules are imported from there
        if variables:
            _set_environment(spec, node, variables)
    _set_environment(spec, node_ids.TRAINER, operation.to_environment())
    if config.pusher:
        _set_environment(spec, node_ids.PUSHER, _of_pushes(config, section))
    steps.configure(spec, section, config.run.cache)
    return job


def _of_pushes(config: Config, section: Kubeflow | Vertex) -> dict[str, str]:
    root = section.root
    who = {"root": root, "pipeline": config.name, "place": root}
    variables = {PUSHER_VARIABLE: json.dumps(who)}
    if config.trainer.warm_start == LATEST:
        variables[WEIGHTS_VARIABLE] = "1"
    return variables


def _query(config: Config, section: Kubeflow | Vertex) -> dict[str, Any]:
    """The query of a run to a database; {} where the image contains the answers."""
    query, examples = config.data.query, config.data.examples
    if not query or paths.is_in_image(examples, section):
        return {}
    return dataclasses.asdict(query.snapshots(examples))


def _record_steps(spec: Json) -> None:
    """Adds the output with its record to each step that runs Strategos."""
    for node, component in spec["components"].items():
        if "args" not in steps.container(spec, node):
            continue  # a container component: TFX gives it a command alone
        outputs = component.setdefault("outputDefinitions", {})
        outputs.setdefault("artifacts", {})[step_record.OUTPUT] = step_record.ARTIFACT


def _set_environment(spec: Json, node: str, variables: Mapping[str, str]) -> None:
    """Sets environment variables of a node: its operation, which is no parameter."""
    entries = steps.container(spec, node).setdefault("env", [])
    entries += ({"name": k, "value": v} for k, v in variables.items())

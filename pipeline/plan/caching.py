"""The rule that makes a node cached, and the keys that follow from it.

TFX takes a node from the cache if a finished execution had the same input artifacts and
the same execution properties. `graph` makes everything that can change a result an
execution property:

1. inputs: the data (`spans.fingerprint`), the schema (`Fingerprints`) and the weights
   to start from (`weights_by_content`), all by content; other inputs are artifacts;
2. settings that change results, as properties of the nodes that use them;
3. the user's code, its imports and the files that it names (`Fingerprints`), and the
   files and variables that its executions have used (`reuse.user_code`); the versions
   of plug-ins that compute or judge results: readers, metrics and gates;
4. versions: Python, TFX and the packages that compute, and the code of
   `strategos.components` (`stack_versions`, a property of ExampleGen; all other nodes
   depend on it through their inputs).

Not compared, so not a property: launcher, time-outs, restarts and checkpoints
(`trainer.operation`), paths (`user_code.workload_paths`), the runner, the engine
(`run.engine`), `run.memory`, ML Metadata's server, logging. The baseline and
`warm_start: latest` would change with each push: `production` keeps them unchanged as
long as the candidate is the same.

Four keys follow from the rule:

- `ir_key`: equal if the compiled pipeline on disk can be used;
- `settings_key`: equal if a run on the same data would have the same result;
- `candidate_key`: equal if this run would train the model in production again;
- `checkpoint_key`: equal if an interrupted training can be resumed.

A partial run does not read data and code of the nodes that it skips: it takes their
part of the last two keys from the run that made their outputs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids, runtime_parameters
from strategos.components.errors import required
from strategos.components.files import digests, storage
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.user_code import modules
from strategos.components.user_code.fingerprint import fingerprint
from strategos.components.user_code.workload_paths import CONTENT
from strategos.pipeline.made_from import stack
from strategos.pipeline.plan import plugins, production
from strategos.pipeline.root.state import file_hashes

if TYPE_CHECKING:
    import ml_metadata
    from tfx.proto.orchestration import pipeline_pb2

    from strategos.pipeline.config.nodes.sections import Node
    from strategos.pipeline.config.sections import Config, Transform
    from strategos.pipeline.config.trainer import Trainer

_PACKAGE = Path(__file__).parents[2]

_STACK = (
    *("strategos", "tfx", "tensorflow", "tensorflow-transform", "tf-keras", "keras"),
    *("tensorflow-data-validation", "tfx-bsl", "apache-beam", "pyarrow", "numpy"),
)

_NOT_COMPILED = (
    *("data.examples", "data.complete", "data.prepare", "data.query", "schema.file"),
    *("trainer.checkpoint", "trainer.fresh_every", "trainer.compare_fresh"),
    *("run.metadata", "run.metadata_timeout", "run.runner", "run.engine", "run.cache"),
    *("run.memory", "run.retries", "run.report"),
    *("schedule", "notify", "kubeflow", "vertex"),
)
"""Settings that are not in the compiled pipeline, besides runtime parameters."""


@dataclass(frozen=True)
class Fingerprints:
    """Hashes of a pipeline's files; the nodes that use a changed file run again.

    Attributes:
      preprocessing: Of the Transform module, with its imports and the files it names.
      model: Of the Trainer module, with its imports and the files it names.
      schema: Of the curated schema; "" without one.
      readers: Of the readers of data that are plug-ins.
      metrics: Of the metrics that are plug-ins.
      gates: Of the gates that are plug-ins.
      predicted_readers: Of the readers of the files to predict that are plug-ins.
      nodes: Of the modules of the user's own nodes, by the node's name.
    """

    preprocessing: str
    model: str
    schema: str
    readers: str = ""
    metrics: str = ""
    gates: str = ""
    predicted_readers: str = ""
    nodes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> Fingerprints:
        """Hashes the user's modules, the files that they name, and the schema.

        Modules are read as text, never imported.

        Args:
          config: The effective settings.
        """
        folder, memo = str(config.folder), file_hashes(config.run.root)
        schema = config.schema_.file

        def of_code(section: Transform | Trainer | Node) -> str:
            files = section.files
            return fingerprint(folder, section.module, os.environ, memo, files)

        return cls(
            preprocessing=of_code(config.transform),
            model=of_code(config.trainer),
            schema=_digest(storage.read(schema)) if schema else "",
            readers=plugins.versions(plugins.readers(config)),
            metrics=plugins.versions(plugins.metrics(config)),
            gates=plugins.versions(plugins.gates(config)),
            predicted_readers=plugins.versions(plugins.predicted_readers(config)),
            nodes={name: of_code(node) for name, node in config.nodes.items()},
        )

    def by_node(self) -> dict[str, str]:
        """The fingerprints of the user's modules, by the node that runs each."""
        ours = {
            node_ids.TRANSFORM: self.preprocessing,
            node_ids.TRAINER: self.model,
        }
        return ours | dict(self.nodes)

    def in_ir(self) -> Fingerprints:
        """Those in the compiled pipeline: constants for Transform and Trainer.

        A run writes the real ones (`UserCode.apply`), so a change of their code needs
        no compilation. Those of the user's own nodes are real: compiling imports them.
        """
        left_out = {
            name: _digest(f"the fingerprint of {name}".encode())
            for name in (node_ids.TRANSFORM, node_ids.TRAINER)
        }
        return self.replaced(self.by_node() | left_out)

    def replaced(self, by_node: Mapping[str, str]) -> Fingerprints:
        """A copy with other fingerprints of modules, of the form of `by_node`."""
        return replace(
            self,
            preprocessing=by_node[node_ids.TRANSFORM],
            model=by_node[node_ids.TRAINER],
            nodes={name: by_node[name] for name in self.nodes},
        )


def weights_by_content(weights: str, memo: Path | None = None) -> str:
    """Replaces a local folder of weights by a hash of its content.

    Args:
      weights: The folder, or `NOTHING`.
      memo: JSON file that caches digests, see `digests.digests`.
    """
    folder = Path(weights)
    if weights == NOTHING or is_remote(weights) or not folder.is_dir():
        return weights
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    contents = digests.digests([str(path) for path in files], memo)
    for path, content in zip(files, contents, strict=True):
        digest.update(f"{path.relative_to(folder)}\0{content}\0".encode())
    return f"{CONTENT}{digest.hexdigest()[:16]}"


@cache
def stack_versions() -> str:
    """The versions of everything that computes results; a change re-runs all nodes.

    Contains a hash of the code of Strategos' components besides the version, so that
    an updated checkout computes with the new code.
    """
    versions = [f"{name} {metadata.version(name)}" for name in _STACK]
    python = f"python {sys.version_info[0]}.{sys.version_info[1]}"
    return ", ".join([*versions, python, f"components {stack.components()}"])


def ir_key(config: Config, fingerprints: Fingerprints) -> str:
    """Hashes everything that the compiled pipeline depends on.

    Contains all of Strategos' own code: compiling reads the graph, the components with
    their imports, and `config`. Contains no code of the user's Transform and Trainer,
    except whether it is written for TFX's Trainer, and no setting of the Evaluator,
    except whether there is one: a run writes both into the compiled pipeline.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules and schema.
    """
    fn_args = modules.takes_fn_args(str(config.folder), config.trainer.module)
    settings = _compiled_settings(config) | {"takes_fn_args": fn_args}
    settings["evaluator"] = config.evaluator is not None
    return _key_of(settings, fingerprints.in_ir())


def evaluator_section(config: Config, fingerprints: Fingerprints) -> dict[str, Any]:
    """The evaluator section as a property of the Evaluator.

    Args:
      config: The effective settings, with the section.
      fingerprints: Of the metrics that are plug-ins.
    """
    section = required(config.evaluator).model_dump(mode="json", exclude_none=True)
    if fingerprints.metrics:
        section["plugins"] = fingerprints.metrics
    return section


def settings_key(config: Config, fingerprints: Fingerprints) -> str:
    """Hashes all settings and code that a result depends on, and no data.

    Does not depend on the place of the workload or of the root.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules, see `reuse.user_code`, and of the schema.
    """
    settings = _compiled_settings(config)
    settings["run"].pop("root")
    for key, folder in config.pusher.folders.items() if config.pusher else ():
        settings["pusher"][key.rpartition(".")[2]] = _below(config.folder, folder)
    if config.predict:
        settings["predict"]["to"] = _below(config.folder, config.predict.to)
    parameters = config.runtime_parameters()
    settings |= parameters | {
        "spans": "",
        "warm_start": _below(config.folder, str(parameters["warm_start"])),
    }
    return _key_of(settings, fingerprints)


def target_key(config: Config) -> str:
    """Names the data that a pipeline learns from, and its push target.

    Staging and production, or the data of two countries, may share a name and a root:
    runs and pushes of one say nothing about the other. Paths below the workload's
    folder are relative to it.

    Args:
      config: The effective settings.

    Returns:
      A list of `data.examples` and `pusher.to` ("" without), as JSON.
    """
    to = config.pusher.to if config.pusher else ""
    places = (_below(config.folder, place) for place in (config.data.examples, to))
    return json.dumps(list(places))


def _compiled_settings(config: Config) -> dict[str, Any]:
    """The settings that are in the compiled pipeline."""
    settings = config.model_dump(mode="json", by_alias=True)
    at_run_time = (each.setting for each in runtime_parameters.TABLE if each.setting)
    for key in (*_NOT_COMPILED, *at_run_time):
        section, _, name = key.rpartition(".")
        (settings[section] if section else settings).pop(name)
    if config.gates:  # the content of files is in the parameter `compared_spans`
        settings["gates"] = config.gates.without_paths(by_alias=True)
    if config.predict:  # the content of files is in the parameter `predicted_spans`
        settings["predict"].pop("data")
    return settings


def _key_of(settings: dict[str, Any], fingerprints: Fingerprints) -> str:
    parts = (
        json.dumps(settings, sort_keys=True),
        repr(fingerprints),
        stack_versions(),
        digests.of_sources(_PACKAGE / "pipeline"),
    )
    return _digest("\0".join(parts).encode())


def _below(folder: Path, path: str) -> str:
    """A path relative to `folder`, if it is below."""
    return path.removeprefix(f"{folder}/")


def node_keys(
    ir: pipeline_pb2.Pipeline, reused: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Hashes the parameters and inputs of each node, which determine its outputs.

    Nodes without outputs do not count as inputs: a gate lets data pass unchanged.

    Args:
      ir: The compiled pipeline, runtime parameters substituted.
      reused: The keys of the nodes that a partial run skips, by node: from the run that
        made the outputs taken instead.

    Returns:
      The key of each node by its id.
    """
    keys: dict[str, str] = {}
    nodes = {each.pipeline_node.node_info.id: each.pipeline_node for each in ir.nodes}
    for name, node in nodes.items():  # inputs come first
        digest = hashlib.sha256(node.parameters.SerializeToString(deterministic=True))
        for before in sorted(node.upstream_nodes):
            if nodes[before].outputs.outputs:
                digest.update(f"{before}\0{keys[before]}\0".encode())
        keys[name] = reused.get(name) or digest.hexdigest()[:16]
    return keys


def candidate_key(
    ir: pipeline_pb2.Pipeline, reused: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Hashes everything that determines the trained model: the Trainer and its inputs.

    Args:
      ir: The compiled pipeline, runtime parameters substituted.
      reused: As for `node_keys`.
    """
    return node_keys(ir, reused)[node_ids.TRAINER]


def checkpoint_key(
    ir: pipeline_pb2.Pipeline, reused: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Hashes like `candidate_key`, without the parameters that may change on resuming.

    Args:
      ir: The compiled pipeline, runtime parameters substituted.
      reused: As for `node_keys`.
    """
    copy = type(ir)()
    copy.CopyFrom(ir)
    for node in copy.nodes:
        properties = node.pipeline_node.parameters.parameters
        for each in runtime_parameters.taken_by(node.pipeline_node.node_info.id):
            if each.resumable:
                properties.pop(each.argument, None)
    return candidate_key(copy, reused)


def allow(
    ir: pipeline_pb2.Pipeline,
    config: Config,
    store: ml_metadata.MetadataStore,
    unknown: Collection[str] = (),
) -> None:
    """Lets TFX look nodes up in its cache, unless `run.cache` is false.

    Pusher must run again once the version that it pushed is gone. Under a local root
    its artifact is a link to the version, and TFX rejects a dangling link. Where root
    or target are remote, nothing is linked, so caching of Pusher is switched off here.

    Args:
      ir: The compiled pipeline, changed in place.
      config: The effective settings.
      store: ML Metadata.
      unknown: Nodes with user code that must run, from `UserCode.unknown`.
    """
    is_void = _lost_what_it_pushed(config, store)
    again = {*unknown, *([node_ids.PUSHER] if is_void else [])}
    for node in ir.nodes:
        caching = node.pipeline_node.execution_options.caching_options
        caching.enable_cache = (
            config.run.cache and node.pipeline_node.node_info.id not in again
        )


def _lost_what_it_pushed(config: Config, store: ml_metadata.MetadataStore) -> bool:
    if not config.pusher:
        return False
    places = (config.run.root, *config.pusher.folders.values())
    if not any(is_remote(place) for place in places):
        return False
    if config.pusher.canary:  # Pusher itself knows the fate of the canary
        return True
    serving = production.newest(store, config.pusher.to)
    return serving is None or not serving.artifact


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

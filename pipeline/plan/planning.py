"""What a run will do, decided before its first node: from a config to a `Plan`.

choose spans → compile (or take the IR from disk) → substitute runtime parameters
  → mark what is left out
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strategos.components import events, runtime_parameters
from strategos.components.errors import BadInputError
from strategos.components.example_gen import spans
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.plan import caching, graph, production, tfx_adapter
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.root import metadata
from strategos.pipeline.root.state import file_hashes, make_state, state_folder

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2

    from strategos.components.example_gen.spans import Listing
    from strategos.pipeline.config.sections import Config


class Compiler(Protocol):
    """Compiles where TFX is imported, which the orchestrator itself does not do."""

    def compile(
        self,
        config: Config,
        fingerprints: caching.Fingerprints,
        defaults: dict[str, Any],
        target: Path,
    ) -> None:
        """Compiles the pipeline of `config` to the file `target`.

        Raises:
          UserError: The config asks for what cannot be compiled.
        """


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what: `strategos run`'s own flags.

    Attributes:
      from_node: Start here; what lies before is taken from the last run.
      to_node: Stop after this one.
      from_scratch: Train from the start, whatever an interrupted training has left.
    """

    from_node: str | None = None
    to_node: str | None = None
    from_scratch: bool = False


@dataclass
class RunFiles:
    """The run's own folder, in the state of its root: its events and its log."""

    root: str
    run_id: str
    folder: Path = field(init=False)

    def __post_init__(self):
        self.folder = state_folder(self.root) / "runs" / self.run_id
        make_state(self.folder)
        self.events.touch()
        self.log.touch()

    @property
    def events(self) -> Path:
        """The event file."""
        return self.folder / "events.jsonl"

    @property
    def log(self) -> Path:
        """Where the output of executors goes."""
        return self.folder / "log.txt"


def earlier_runs(root: str) -> set[str]:
    """The ids of the runs that this machine has begun on `root`."""
    folder = state_folder(root) / "runs"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def parameters(config: Config, data: Listing) -> dict[str, Any]:
    """A value for each runtime parameter.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.

    Raises:
      BadInputError: No data match the pattern or the choice of spans.
    """
    chosen, memo = data.chosen, file_hashes(config.run.root)
    return {
        **dict.fromkeys((each.name for each in runtime_parameters.TABLE), NOTHING),
        **config.runtime_parameters(),
        "spans": json.dumps([[span.number, span.version] for span in chosen]),
        "data_fingerprint": spans.fingerprint(chosen, memo),
    }


def plan(
    config: Config,
    data: Listing,
    connection: metadata_store_pb2.ConnectionConfig,
    options: Options,
    files: RunFiles,
    client: Compiler,
) -> Plan:
    """Decides all of a run.

    Args:
      config: The effective settings, already checked.
      data: The files that `data.examples` names.
      connection: ML Metadata's.
      options: Flags of this run.
      files: Where the run reports to.
      client: Compiles, where the IR on disk is not that of these settings.

    Raises:
      BadInputError: What was asked for cannot be run.
    """
    values = parameters(config, data)
    values["warm_start"] = caching.weights_by_content(values["warm_start"], config)
    ir = _compiled(config, values, client)
    values["pipeline-run-id"] = files.run_id
    key = _substitute(ir, values, config, connection)
    operation = dataclasses.replace(
        config.trainer.operation(),
        checkpoint_key=key,
        from_scratch=options.from_scratch,
    )
    caching.allow(ir, config, connection)
    plan = Plan(
        files.run_id,
        ir,
        connection,
        files.events,
        files.log,
        operation.to_environment() | graph.workload_paths(config).to_environment(),
    )
    _mark(plan, options)
    return plan


def _compiled(config: Config, values: dict[str, Any], client: Compiler) -> Any:
    """The IR, from disk where nothing it depends on has changed."""
    from tfx.proto.orchestration import pipeline_pb2

    fingerprints = caching.Fingerprints.of(config)
    key = caching.ir_key(config, fingerprints)
    path = state_folder(config.run.root) / "ir" / f"{key}.pb"
    if not path.is_file():
        events.emit("note", message="compiling the pipeline (settings or code are new)")
        make_state(path.parent)
        client.compile(config, fingerprints, values, path)
    return pipeline_pb2.Pipeline.FromString(path.read_bytes())


def _substitute(
    ir: Any,
    values: dict[str, Any],
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
) -> str:
    """Puts the runtime parameters into the IR, last those that production decides.

    Returns:
      The key of the Trainer's checkpoints.
    """
    from tfx.proto.orchestration import pipeline_pb2

    # What `latest` means today is no part of what a candidate is.
    latest = config.trainer.warm_start == LATEST
    asked = LATEST if latest else values["warm_start"]
    trial = pipeline_pb2.Pipeline()
    trial.CopyFrom(ir)
    tfx_adapter.substitute(trial, {**values, "warm_start": asked})
    if config.pusher:
        values = {**values, **_of_production(config, connection, trial)}
    tfx_adapter.substitute(ir, values)
    return caching.checkpoint_key(trial)


def _of_production(
    config: Config, connection: metadata_store_pb2.ConnectionConfig, trial: Any
) -> dict[str, str]:
    """The parameters that depend on the model in production."""
    store = metadata.store(connection)
    serving = production.newest(store, config.pusher.to)
    if serving and not serving.artifact:
        _report_unknown(config, serving)
    key, fresh = caching.candidate_key(trial), not config.run.cache
    found = {"candidate": key, "baseline": production.baseline(serving, key, fresh)}
    if config.trainer.warm_start == LATEST:
        weights = production.warm_start(store, serving, key, fresh)
        _tell_warm_start(config, serving, weights)
        found["warm_start"] = weights
    return found


def _report_unknown(config: Config, serving: production.Production) -> None:
    """Says that the model in production is not one of this ML Metadata.

    Raises:
      BadInputError: Training is to start from its weights, which are not known.
    """
    if config.trainer.warm_start == LATEST:
        raise BadInputError(
            f"{config.where('trainer.warm_start')}: trainer.warm_start: latest: ML "
            f"Metadata has no record of {serving.path}, the newest version in "
            "pusher.to, so its weights are not known. Name the folder of a Model "
            "artifact, or remove the setting for one run."
        )
    events.emit(
        "note",
        message=f"ML Metadata has no record of {serving.path} (copied there, or pushed "
        "under another root); the candidate is compared with it all the same",
    )


def _tell_warm_start(
    config: Config, serving: production.Production | None, weights: str
) -> None:
    """Says where nothing is there to start from.

    Raises:
      BadInputError: The weights of the model in production are gone.
    """
    if serving is None:
        events.emit(
            "note",
            message="trainer.warm_start: latest: nothing has been pushed to "
            f"{config.pusher.to} yet, so training starts from fresh weights",
        )
    elif not (weights == NOTHING or is_remote(weights) or Path(weights).is_dir()):
        raise BadInputError(
            f"{config.where('trainer.warm_start')}: trainer.warm_start: latest: the "
            f"weights of {serving.path} should be in {weights}, which is gone. Remove "
            "the setting for one run, and the model that it pushes can be started from."
        )


def _mark(plan: Plan, options: Options) -> None:
    if not (options.from_node or options.to_node):
        return
    names = [node.pipeline_node.node_info.id for node in plan.ir.nodes]
    for flag, name in (("--from", options.from_node), ("--to", options.to_node)):
        if name and name not in names:
            raise BadInputError(
                f"{flag} {name}: no such node. This pipeline has {', '.join(names)}."
            )
    tfx_adapter.mark_part(plan.ir, options.from_node, options.to_node)

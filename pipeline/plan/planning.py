"""Makes the `Plan` of a run from a config, before its first node.

choose spans → compile (or read the IR from disk) → substitute runtime parameters
  → mark the nodes of a partial run
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strategos.components import events, node_ids, runtime_parameters
from strategos.components.data_files import spans
from strategos.components.errors import UserError, required
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.span_validator import FOLDER_VARIABLE
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.plan import (
    caching,
    compared_spans,
    graph,
    partial,
    production,
    tfx_adapter,
)
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.plan.reuse import damage, user_code
from strategos.pipeline.root import metadata
from strategos.pipeline.root.state import file_hashes, make_state, state_folder

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2

    from strategos.components.data_files.listing import Listing
    from strategos.pipeline.config.sections import Config


_UNCOMPARED = "Judged without the model in production (--without-baseline)."


class Compiler(Protocol):
    """Compiles in a process that imports TFX; the orchestrator does not."""

    def compile(
        self,
        config: Config,
        fingerprints: caching.Fingerprints,
        defaults: dict[str, Any],
        target: Path,
    ) -> None:
        """Compiles the pipeline of `config` to the file `target`.

        Args:
          config: The effective settings.
          fingerprints: Of the user's modules and schema.
          defaults: A value for each runtime parameter, used where a run gives no other.
          target: The file to write; replaced as a whole.

        Raises:
          UserError: The pipeline cannot be compiled.
        """


@dataclass(frozen=True)
class RunOptions:
    """Command-line options of one run.

    Attributes:
      from_node: The first node to run; earlier ones keep their outputs of the last run.
      to_node: The last node to run.
      from_scratch: Ignore the checkpoints of an interrupted training.
      reason: Why `strategos retrain` starts the run; "" for a run by hand.
      new: Numbers of the new spans, from the decision to retrain; empty for a run by
        hand: then the newest span is new.
      without_baseline: Judge the candidate without the model in production; the run's
        reason says so.
      take_over: The place, e.g. `build1:/data/root`, identity or pipeline of another
        root; this run may replace its models.
    """

    from_node: str | None = None
    to_node: str | None = None
    from_scratch: bool = False
    reason: str = ""
    new: frozenset[int] = frozenset()
    without_baseline: bool = False
    take_over: str | None = None

    @property
    def partial(self) -> bool:
        """Whether only some nodes run."""
        return bool(self.from_node or self.to_node)


@dataclass
class RunFiles:
    """The folder of a run, with its events and its log; created if missing.

    Attributes:
      root: The pipeline root.
      run_id: The run's id.
      folder: The folder, in the local state of the root.
    """

    root: str
    run_id: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
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
        """The log file for the output of executors."""
        return self.folder / "log.txt"


def earlier_runs(root: str) -> set[str]:
    """The ids of the runs that this machine has started on `root`."""
    folder = state_folder(root) / "runs"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def parameters(
    config: Config, data: Listing, new: Collection[int] = ()
) -> dict[str, Any]:
    """Returns a value for each runtime parameter, by name.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      new: As in `RunOptions`.

    Raises:
      BadInputError: No file matches the pattern or the choice of spans.
    """
    chosen, memo = data.chosen, file_hashes(config.run.root)
    return {
        **dict.fromkeys((each.name for each in runtime_parameters.TABLE), NOTHING),
        **config.runtime_parameters(),
        "spans": json.dumps([[span.number, span.version] for span in chosen]),
        "data_fingerprint": spans.fingerprint(chosen, memo),
        "compared_spans": _compared(config, data, new),
    }


def _compared(config: Config, data: Listing, new: Collection[int]) -> str:
    """The spans that `gates` judges, and the usual ones, as JSON; `NOTHING` without."""
    if not config.gates:
        return NOTHING
    memo = file_hashes(config.run.root)
    try:
        return compared_spans.compared_spans(data, new, config.serving or "", memo)
    except UserError as error:
        raise config.located(error) from error


def is_compiled(config: Config) -> bool:
    """Whether the IR of these settings and this code is on disk."""
    return _ir_path(config, caching.Fingerprints.of(config)).is_file()


def plan(
    config: Config,
    data: Listing,
    connection: metadata_store_pb2.ConnectionConfig,
    options: RunOptions,
    files: RunFiles,
    client: Compiler,
) -> Plan:
    """Makes the plan of a run.

    Args:
      config: The effective settings, already checked.
      data: The files that `data.examples` names.
      connection: ML Metadata's.
      options: Flags of this run.
      files: The run's event file and log.
      client: Compiles the pipeline, if no IR on disk is up to date.

    Raises:
      BadInputError: The run is impossible as configured.
    """
    values = parameters(config, data, options.new)
    values["warm_start"] = caching.weights_by_content(values["warm_start"], config)
    ir, fingerprints = _compiled(config, values, client)
    values["pipeline-run-id"] = files.run_id
    store = metadata.store(connection, config.run.metadata_timeout_seconds)
    user_code.record_killed(config, store, files.run_id)
    code = user_code.UserCode.of(config, store, fingerprints)
    code.apply(ir)
    reused = partial.mark(ir, options, config, connection)
    pushes = production.push_environment(ir, config, connection, options.take_over)
    keys = _substitute(
        *(ir, values, config, connection, reused),
        without_baseline=options.without_baseline,
    )
    operation = dataclasses.replace(
        config.operation(),
        checkpoint_key=keys["checkpoint"],
        from_scratch=options.from_scratch,
    )
    code.report(config)
    caching.allow(ir, config, connection, code.unknown)
    for node in ir.nodes:
        node.pipeline_node.execution_options.max_execution_retries = config.run.retries
    if config.run.cache or reused:
        damage.withdraw(ir, reused, config, connection)
    engine = config.run.engine.to_engine(memory=config.run.memory_bytes)
    return Plan(
        files.run_id,
        ir,
        connection,
        files.events,
        files.log,
        {**_facts(values, config, options, code), "keys": json.dumps(keys)},
        {
            **operation.to_environment(),
            **engine.to_environment(),
            **graph.workload_paths(config).to_environment(),
            **pushes,
            FOLDER_VARIABLE: str(state_folder(config.run.root) / "span-statistics"),
        },
        config.run.metadata_timeout_seconds,
    )


def _facts(
    values: dict[str, Any],
    config: Config,
    options: RunOptions,
    code: user_code.UserCode,
) -> dict[str, str]:
    """Facts of a run for later decisions to retrain, and for `strategos runs`."""
    facts = {
        "spans": values["spans"],
        "data": values["data_fingerprint"],
        "settings": caching.settings_key(config, code.fingerprints),
        "target": caching.target_key(config),
        "reason": f"{options.reason} {_UNCOMPARED * options.without_baseline}".strip(),
        "part": "yes" if options.partial else "",
    }
    return {name: text for name, text in facts.items() if text}


def _compiled(
    config: Config, values: dict[str, Any], client: Compiler
) -> tuple[Any, caching.Fingerprints]:
    """Reads the IR from disk; compiles first if anything that it depends on changed.

    Returns:
      The IR, and the fingerprints that are in it.
    """
    from tfx.proto.orchestration import pipeline_pb2

    fingerprints = caching.Fingerprints.of(config)
    path = _ir_path(config, fingerprints)
    if not path.is_file():
        events.emit("note", message="compiling the pipeline (settings or code are new)")
        make_state(path.parent)
        client.compile(config, fingerprints, values, path)
    ir = pipeline_pb2.Pipeline.FromString(path.read_bytes())
    _narrow(ir)
    return ir, fingerprints


def _narrow(ir: Any) -> None:
    """Looks up the inputs of nodes by node and run, not by pipeline as well.

    A node belongs to one pipeline, so the result is the same; but TFX would read the
    executions of all past runs for each input.
    """
    for node in ir.nodes:
        for inputs in node.pipeline_node.inputs.inputs.values():
            for channel in inputs.channels:
                queries = {each.type.name: each for each in channel.context_queries}
                if {"pipeline", "node"} <= queries.keys():
                    channel.context_queries.remove(queries["pipeline"])


def _ir_path(config: Config, fingerprints: caching.Fingerprints) -> Path:
    key = caching.ir_key(config, fingerprints)
    return state_folder(config.run.root) / "ir" / f"{key}.pb"


def _substitute(
    ir: Any,
    values: dict[str, Any],
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
    reused: dict[str, str],
    *,
    without_baseline: bool,
) -> dict[str, str]:
    """Substitutes the runtime parameters in the IR, production's after all others.

    Returns:
      The key of each node; as `checkpoint`, the key of the Trainer's checkpoints.
    """
    from tfx.proto.orchestration import pipeline_pb2

    # A candidate is identified by `latest`, not by the model that it now resolves to.
    latest = config.trainer.warm_start == LATEST
    configured = LATEST if latest else values["warm_start"]
    trial = pipeline_pb2.Pipeline()
    trial.CopyFrom(ir)
    tfx_adapter.substitute(trial, {**values, "warm_start": configured})
    keys = caching.node_keys(trial, reused)
    if config.pusher:
        candidate = keys[node_ids.TRAINER]
        values = {**values, **_of_production(config, connection, candidate)}
    if without_baseline:
        values["baseline"] = NOTHING
    tfx_adapter.substitute(ir, values)
    # A training from fresh weights must not go on from checkpoints of another one.
    fresh = latest and values["warm_start"] == NOTHING
    key = caching.checkpoint_key(trial, reused)
    return keys | {"checkpoint": f"{key}-fresh" if fresh else key}


def _of_production(
    config: Config, connection: metadata_store_pb2.ConnectionConfig, key: str
) -> dict[str, str]:
    """The parameters that depend on the model in production."""
    store = metadata.store(connection, config.run.metadata_timeout_seconds)
    serving = production.newest(store, required(config.pusher).to)
    if serving and not serving.model:
        _report_unknown(config, serving)
    fresh = not config.run.cache
    values = {"candidate": key, "baseline": production.baseline(serving, key, fresh)}
    if config.trainer.warm_start == LATEST:
        every = config.trainer.fresh_every
        weights = production.warm_start(store, serving, key, fresh, every)
        _report_warm_start(config, serving, weights)
        values["warm_start"] = weights
    return values


def _report_unknown(config: Config, serving: production.Production) -> None:
    """Reports that ML Metadata has no record of the model in production.

    Raises:
      BadInputError: `warm_start: latest` needs its weights, which are unknown.
    """
    if config.trainer.warm_start == LATEST:
        raise config.problem(
            "trainer.warm_start",
            f"ML Metadata has no record of {serving.path}, the newest version in "
            "pusher.to, so its weights are not known",
            received=LATEST,
            remedy="Name the folder of a Model artifact, or remove the setting for "
            "one run.",
        )
    events.emit(
        "note",
        message=f"ML Metadata has no record of {serving.path} (copied there, or pushed "
        "under another root); the candidate is still compared with it",
    )


def _report_warm_start(
    config: Config, serving: production.Production | None, weights: str
) -> None:
    """Reports that no model has been pushed to start from.

    Raises:
      BadInputError: The weights of the model in production are gone.
    """
    if serving is None:
        events.emit(
            "note",
            message="trainer.warm_start: latest: nothing has been pushed to "
            f"{required(config.pusher).to} yet, so training starts from fresh weights",
        )
    elif not (weights == NOTHING or is_remote(weights) or Path(weights).is_dir()):
        raise config.problem(
            "trainer.warm_start",
            f"the weights of {serving.path} should be in {weights}, which is gone",
            received=LATEST,
            remedy="Remove the setting for one run, and the model that it pushes can "
            "be started from.",
        )

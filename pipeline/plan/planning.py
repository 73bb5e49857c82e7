"""Makes the `Plan` of a run from a config, before its first node.

choose spans → compile (or read the IR from disk) → substitute fingerprints of the
  user's code and runtime parameters → mark the nodes of a partial run
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import events, node_ids, runtime_parameters
from strategos.components.data_files import predicted_spans, spans
from strategos.components.data_files.listing import Listing
from strategos.components.errors import UserError, required
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.shards.engine import Engine
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
from strategos.pipeline.plan.reuse import compiled, damage, user_code
from strategos.pipeline.root import metadata
from strategos.pipeline.root.state import (
    file_hashes,
    kept_measurements,
    make_state,
    state_folder,
)

if TYPE_CHECKING:
    import ml_metadata

from strategos.pipeline.config.sections import Config

_UNCOMPARED = "Judged without the model in production (--without-baseline)."


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
        "predicted_spans": _predicted(config),
    }


def _compared(config: Config, data: Listing, new: Collection[int]) -> str:
    """The spans that `gates` judges, and the usual ones, as JSON; `NOTHING` without."""
    if not config.gates:
        return NOTHING
    memo = file_hashes(config.run.root)
    try:
        others = config.gates.other_data
        return compared_spans.compared_spans(data, new, others, memo)
    except UserError as error:
        raise config.located(error) from error


def _predicted(config: Config) -> str:
    """The files that `predict` names, in the form of its parameter."""
    if not config.predict:
        return NOTHING
    memo = file_hashes(config.run.root)
    try:
        return predicted_spans.choose(**config.predict.choice, memo=memo)
    except UserError as error:
        raise config.located(error) from error


class Executed(enum.Enum):
    """The nodes that a run is likely to execute in the executor process."""

    NONE = enum.auto()
    FROM_TRAINER = enum.auto()
    ANY = enum.auto()


def likely_executed(config: Config, data: Listing, options: RunOptions) -> Executed:
    """What a run is likely to execute: known before the plan, and not for certain.

    Any node if the pipeline must be compiled, or if the last finished run of the same
    settings had other code, data, runtime parameters or options; from the Trainer on if
    only its code or parameters are others.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      options: Flags of this run.
    """
    fingerprints = caching.Fingerprints.of(config)
    if not compiled.is_there(config, fingerprints):
        return Executed.ANY
    if config.run.runner == "beam":  # starts processes of its own
        return Executed.NONE
    try:
        request = _request(fingerprints, _values(config, data, options), options)
    except UserError:  # `plan` raises it again, unless `prepare_data` makes the data
        return Executed.ANY
    done = compiled.done(config, fingerprints) if config.run.cache else ""
    if done == request:
        return Executed.NONE
    is_trained = done.splitlines()[:1] == request.splitlines()[:1]
    return Executed.FROM_TRAINER if is_trained else Executed.ANY


def _request(
    fingerprints: caching.Fingerprints, values: dict[str, Any], options: RunOptions
) -> str:
    """What decides which nodes are cached, by lines: before the Trainer, and for it."""
    own = {each.name for each in runtime_parameters.taken_by(node_ids.TRAINER)}
    before = {name: value for name, value in values.items() if name not in own}
    part = (options.from_node, options.to_node, options.without_baseline)
    training = {name: values[name] for name in values if name in own}
    others = dataclasses.replace(fingerprints, model="")
    return f"{(others, before, part)!r}\n{(fingerprints.model, training)!r}"


def _values(config: Config, data: Listing, options: RunOptions) -> dict[str, Any]:
    values = parameters(config, data, options.new)
    memo = file_hashes(config.run.root)
    weights = caching.weights_by_content(values["warm_start"], memo)
    return {**values, "warm_start": weights}


def plan(
    config: Config,
    data: Listing,
    options: RunOptions,
    files: RunFiles,
    client: compiled.Compiler,
) -> Plan:
    """Makes the plan of a run.

    Args:
      config: The effective settings, already checked.
      data: The files that `data.examples` names.
      options: Flags of this run.
      files: The run's event file and log.
      client: Compiles the pipeline, if no IR on disk is up to date.

    Raises:
      BadInputError: The run is impossible as configured.
    """
    values = _values(config, data, options)
    ir, fingerprints, path = compiled.read(config, values, client)
    request = _request(fingerprints, values, options)
    values["pipeline-run-id"] = files.run_id
    connection = metadata.of(config)
    store = metadata.store(connection, config.run.metadata_timeout_seconds)
    user_code.record_killed(config, store, files.run_id)
    code = user_code.UserCode.of(config, store, fingerprints)
    code.apply(ir)
    reused = partial.mark(ir, options, config, store)
    pushes = production.push_environment(ir, config, store, options.take_over)
    keys = _substitute(
        *(ir, values, config, store, reused),
        without_baseline=options.without_baseline,
    )
    operation = dataclasses.replace(
        config.operation(),
        checkpoint_key=keys["checkpoint"],
        from_scratch=options.from_scratch,
    )
    code.report(config)
    caching.allow(ir, config, store, code.unknown)
    for node in ir.nodes:
        node.pipeline_node.execution_options.max_execution_retries = config.run.retries
    if config.run.cache or reused:
        damage.withdraw(ir, reused, config, store)
    return Plan(
        files.run_id,
        ir,
        connection,
        files.events,
        files.log,
        {**_facts(values, config, options, code), "keys": json.dumps(keys)},
        {
            **operation.to_environment(),
            **engine_of(config).to_environment(),
            **graph.workload_paths(config).to_environment(),
            **pushes,
            **kept_measurements(config.run.root, cached=config.run.cache),
        },
        config.run.metadata_timeout_seconds,
        path,
        request,
    )


def engine_of(config: Config) -> Engine:
    """The engine of a run on this machine.

    Args:
      config: The effective settings.
    """
    engine = config.run.engine.to_engine(memory=config.run.memory_bytes)
    if engine.runner == "direct" or not is_remote(config.run.root):
        return engine
    root = config.run.root.rstrip("/")
    return dataclasses.replace(engine, exchange=f"{root}/{config.name}/.engine")


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


def _substitute(
    ir: Any,
    values: dict[str, Any],
    config: Config,
    store: ml_metadata.MetadataStore,
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
        values = {**values, **_of_production(config, store, candidate)}
    if without_baseline:
        values["baseline"] = NOTHING
    tfx_adapter.substitute(ir, values)
    # A training from fresh weights must not go on from checkpoints of another one.
    fresh = latest and values["warm_start"] == NOTHING
    key = caching.checkpoint_key(trial, reused)
    return keys | {"checkpoint": f"{key}-fresh" if fresh else key}


def _of_production(
    config: Config, store: ml_metadata.MetadataStore, key: str
) -> dict[str, str]:
    """The parameters that depend on the model in production."""
    serving = production.newest(store, required(config.pusher).to)
    if serving and not serving.model:
        _report_unknown(config, serving)
    fresh = not config.run.cache
    values = {"candidate": key, "baseline": production.baseline(serving, key, fresh)}
    if config.trainer.warm_start == LATEST:
        every = config.trainer.fresh_every
        weights = production.warm_start(store, serving, key, fresh, every)
        # Of the model in production itself, which is cached, `clean` may have removed
        # the weights that it started from.
        if fresh or serving is None or serving.candidate != key:
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

"""`strategos explain distribution`: the devices of a training, and a step's cost.

Nothing is trained. Choosing the strategy needs no TensorFlow. Figures of the data come
from the last Transform output in ML Metadata, figures of the model from a process that
builds the model and discards it.

Gradients are exchanged by a ring: each of R replicas sends and receives 2 (R - 1) / R
times their size, the least that an all-reduce can do (P. Patarasu, X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
Parallel and Distributed Computing 69 (2009) 117-124). Latency comes on top.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from strategos.components import worker_process
from strategos.components.files import filesystems
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.distribution.strategy import Choice
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history import transformed

_MODULE = "strategos.components.trainer.run.measure"


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The training split after Transform.

    Attributes:
      rows: Number of examples.
      files: Number of files that hold the examples.
      bytes: Size of the files.
      steps_per_epoch: Number of global batches in one epoch.
      last_batch: Rows of an epoch's last batch.
    """

    rows: int
    files: int
    bytes: int
    steps_per_epoch: int
    last_batch: int


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """The size of a model and of its gradients.

    Attributes:
      parameters: Number of parameters.
      trainable: Number of trainable parameters.
      gradient_bytes: Size of the gradients that a replica exchanges in a step.
      sparse_bytes: The part of `gradient_bytes` for rows of embeddings; grows with the
        batch.
    """

    parameters: int
    trainable: int
    gradient_bytes: int
    sparse_bytes: int


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The duration of a step, in seconds.

    Attributes:
      alone: A global batch on one replica, measured here.
      compute: One replica's share of the batch, measured here; the shares of all
        replicas if they compute on the same cores.
      exchange: Exchanging the gradients, at the configured bandwidth.
      together: A global batch on all replicas: compute and exchange.
    """

    alone: float
    compute: float
    exchange: float
    together: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The devices that would train a model, the reason, and the cost of a step.

    Attributes:
      choice: The strategy.
      global_batch: Rows of a step.
      data: The training split; None if Transform has not run yet.
      model: The model; None without data, or if a stock `run_fn(fn_args)` builds it.
      step: A step's duration; None without `bandwidth`, or with one replica.
      missing: The command to run to fill in `data` and `model`; "" if none is missing.
      warning: Why more replicas will not be faster; "" if they may be.
    """

    choice: Choice
    global_batch: int
    data: TrainingData | None = None
    model: ModelSize | None = None
    step: StepTime | None = None
    missing: str = ""
    warning: str = ""

    @property
    def batch_per_replica(self) -> int | None:
        """Rows of the largest share of a global batch; None where a TPU decides."""
        replicas = self.choice.replicas
        return replicas and -(-self.global_batch // replicas)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values."""
        plain = dataclasses.asdict(self)
        choice = plain.pop("choice")
        return {
            "strategy": choice.pop("name"),
            **choice,
            "replicas": self.choice.replicas,
            "batch_per_replica": self.batch_per_replica,
            **plain,
        }


def distribution(config: Config, choice: Choice, cluster: ClusterSpec) -> Explanation:
    """Explains which devices would train the model of `config`.

    Args:
      config: The effective settings.
      choice: The strategy that these and the environment lead to.
      cluster: The cluster that the environment names.

    Raises:
      UserError: The model cannot be built.
    """
    launched_by = config.trainer.distribution.launched_by
    is_local = launched_by.on_this_host and not cluster.addresses
    shares_cores = choice.kind == "CPU" and is_local
    explanation = Explanation(
        choice, config.trainer.batch_size, warning=_shared(choice, shares_cores)
    )
    output = transformed.last(config)
    if output is None:
        command = f"strategos run {filesystems.short(str(config.path))} --to Transform"
        return dataclasses.replace(explanation, missing=command)
    with transformed.local(output) as folders:
        return _measured(explanation, config, folders, shares_cores)


def exchange_seconds(choice: Choice, model: ModelSize, bandwidth: float) -> float:
    """Estimates the seconds in which replicas exchange the gradients of one step.

    Args:
      choice: The strategy.
      model: The model that the gradients belong to.
      bandwidth: Of the link of each replica, in bytes a second.
    """
    replicas, size = choice.replicas or 1, model.gradient_bytes
    if choice.name == "parameter_server":
        return 2 * size / bandwidth  # a worker reads variables, and sends gradients
    if choice.name == "central_storage":
        return 2 * replicas * size / bandwidth  # all over the link of one device
    dense = size - model.sparse_bytes
    ring = 2 * (replicas - 1) / replicas * dense
    gather = (replicas - 1) * model.sparse_bytes  # each gets the rows of all others
    return (ring + gather) / bandwidth


def step_of(
    choice: Choice,
    model: ModelSize,
    bandwidth: float,
    *,
    alone: float,
    share: float,
    shares_cores: bool,
) -> StepTime:
    """Estimates the duration of a step.

    Args:
      choice: The strategy.
      model: The model.
      bandwidth: Of the link of each replica, in bytes a second.
      alone: Seconds of a global batch on one replica.
      share: Seconds of one replica's share of a global batch.
      shares_cores: Whether all replicas compute on the same cores.
    """
    exchange = exchange_seconds(choice, model, bandwidth)
    if choice.is_synchronous:
        compute = share * (choice.replicas or 1) if shares_cores else share
        return StepTime(alone, compute, exchange, compute + exchange)
    # Each worker takes its own global batches, which multiplies the steps in a given
    # time; but everything that is sent goes through the links of the servers.
    compute = share * choice.workers if shares_cores else share
    workers = (compute + exchange) / choice.workers
    servers = exchange / choice.parameter_servers
    return StepTime(alone, compute, exchange, max(workers, servers))


def _measured(
    explanation: Explanation,
    config: Config,
    folders: Mapping[str, str],
    shares_cores: bool,
) -> Explanation:
    choice, bandwidth = explanation.choice, config.trainer.distribution.bytes_per_second
    part = explanation.batch_per_replica or explanation.global_batch
    is_timed = bandwidth and _has_several(choice)
    facts = _build_model(
        {
            "spec": transformed.worker_spec(config, folders).to_json(),
            "strategy": choice.name,
            "replicas": choice.replicas or 1,
            "sample": part,
            "timed": [part, explanation.global_batch] if is_timed else [],
        }
    )
    explanation = dataclasses.replace(
        explanation, data=_data(config, facts), model=_model(facts)
    )
    if not explanation.model or not bandwidth or not facts["seconds"]:
        return explanation
    share, alone = facts["seconds"]
    step = step_of(
        choice,
        explanation.model,
        bandwidth,
        alone=alone,
        share=share,
        shares_cores=shares_cores,
    )
    return dataclasses.replace(
        explanation, step=step, warning=_slower(step, shares_cores)
    )


def _build_model(request: dict[str, Any]) -> dict[str, Any]:
    """Builds the model in a new process; shows its log only on failure."""
    env = worker_process.tensorflow(request["spec"]["settings"]["keras"])
    with worker_process.log_kept_back():
        return worker_process.run(_MODULE, request, name="model", env=env)


def _data(config: Config, facts: Mapping[str, Any]) -> TrainingData:
    rows, batch = facts["rows"], config.trainer.batch_size
    full, rest = divmod(rows, batch)
    if config.trainer.last_batch == "drop":
        rest = 0
    steps, last = (full + 1, rest) if rest else (full, batch if full else 0)
    return TrainingData(rows, facts["files"], facts["bytes"], steps, last)


def _model(facts: Mapping[str, Any]) -> ModelSize | None:
    if "parameters" not in facts:
        return None
    return ModelSize(
        parameters=facts["parameters"],
        trainable=facts["trainable"],
        gradient_bytes=facts["dense_bytes"] + facts["sparse_bytes"],
        sparse_bytes=facts["sparse_bytes"],
    )


def _shared(choice: Choice, shares_cores: bool) -> str:
    if not (shares_cores and _has_several(choice)):
        return ""
    return "all replicas share the cores of this machine: do not expect a speed-up"


def _has_several(choice: Choice) -> bool:
    """Whether there are several replicas, as far as known without asking a TPU."""
    return (choice.replicas or 1) > 1 or choice.workers > 1


def _slower(step: StepTime, shares_cores: bool) -> str:
    if step.together < step.alone:
        return ""
    factor = f"{step.together / step.alone:.1f}"
    text = "no faster than one device"
    if factor != "1.0":
        text = f"slower than one device, by a factor of {factor}"
    if shares_cores:
        return f"{text}: all replicas share the cores of this machine"
    if step.exchange > step.compute:
        return f"{text}: use a larger batch, fewer replicas or a faster network"
    return f"{text}: the batch is too small to be divided"

"""Reads the cluster from the environment: once, here, into one value."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from strategos.components.errors import UserError

SYNCHRONOUS = ("chief", "worker")
"""Task types that hold replicas in synchronous training."""

_TYPES = ("chief", "worker", "ps", "evaluator")
# Vertex numbers its worker pools; the role of each is fixed.
_VERTEX_POOLS = {f"workerpool{index}": name for index, name in enumerate(_TYPES)}
_ADDRESS = re.compile(r"(?:[^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_PORTS = range(1, 1 << 16)
_EXAMPLE = (
    '{"cluster": {"chief": ["HOST:PORT"], "worker": ["HOST:PORT"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
TPU_PORT = 8470
"""The default port of a TPU worker's gRPC server."""

CLUSTER_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC")
"""Environment variables that describe a cluster; the first that is set counts."""

TPU_VARIABLES = (
    "TPU_NAME",
    "COLAB_TPU_ADDR",
    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
    "TPU_WORKER_HOSTNAMES",
    "TPU_ACCELERATOR_TYPE",
)
"""Environment variables of which each names a TPU, in the order of precedence."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a cluster.

    Attributes:
      type: `chief`, `worker`, `ps` or `evaluator`.
      index: Number among the tasks of this type, from 0.
    """

    type: str
    index: int = 0

    @property
    def name(self) -> str:
        """Name in log lines and errors: `worker-0`."""
        return f"{self.type}-{self.index}"


@dataclasses.dataclass(frozen=True)
class ClusterSpec:
    """The processes that train together, and the task of this process.

    Attributes:
      addresses: `host:port` of each task by type; empty for a single process.
      task: This process's task; None outside of a cluster.
      tpu: Name or address of the TPU that the environment names, or None.
      gpus: Number of GPUs that this process may use.
      lost: For a gang that goes on without some of its workers: their numbers in the
        whole gang, from 0. The workers here are the others, in the same order.
    """

    addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    task: Task | None = None
    tpu: str | None = None
    gpus: int = 0
    lost: tuple[int, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ClusterSpec:
        """Reads TF_CONFIG or CLUSTER_SPEC, the TPU's variables and the visible GPUs.

        Args:
          environ: The environment, by default this process's.

        Raises:
          UserError: The environment names an impossible cluster, or does not name this
            process's task in it.
        """
        addresses, task = _cluster(environ)
        return cls(addresses, task, _tpu(environ), len(visible_gpus(environ)))

    @classmethod
    def of(cls, tasks: Iterable[Task], addresses: Iterable[str]) -> ClusterSpec:
        """The cluster of some tasks with their addresses, in the same order."""
        by_type: dict[str, tuple[str, ...]] = {}
        for task, address in zip(tasks, addresses, strict=True):
            by_type[task.type] = (*by_type.get(task.type, ()), address)
        return cls(by_type)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, the chief's type first."""
        types = sorted(self.addresses, key=lambda kind: (kind != "chief", kind))
        return tuple(
            Task(kind, index)
            for kind in types
            for index in range(len(self.addresses[kind]))
        )

    @property
    def chief(self) -> Task | None:
        """The task that publishes the model: `chief`, or else the first worker."""
        first = [task for task in self.tasks if task.type in SYNCHRONOUS]
        return first[0] if first else None

    @property
    def is_chief(self) -> bool:
        """Whether this process publishes the model; a single process does."""
        return self.task is None or self.task == self.chief

    def at(self, task: Task) -> ClusterSpec:
        """The same cluster, seen from `task`."""
        return dataclasses.replace(self, task=task)

    def without(self, lost: Iterable[int]) -> ClusterSpec:
        """The cluster of a gang that goes on without some of its workers.

        If the chief is among them, the first of the others takes its place. For
        example, without the workers 0 and 2 of `chief-0`, `worker-0` to `worker-2`, the
        former `worker-0` becomes `chief-0`, and the former `worker-2` `worker-0`.

        Args:
          lost: Numbers of workers in this cluster, from 0; `tasks` has their order.
        """
        lost = tuple(sorted(lost))
        if not lost:
            return self
        workers = [task for task in self.tasks if task.type in SYNCHRONOUS]
        left = [each for place, each in enumerate(workers) if place not in lost]
        tasks = workers[: len(left)]
        addresses = (":".join(map(str, self.address_of(each))) for each in left)
        task = dict(zip(left, tasks, strict=True)).get(self.task) if self.task else None
        spec = self.of(tasks, addresses)
        return dataclasses.replace(self, addresses=spec.addresses, task=task, lost=lost)

    @property
    def whole(self) -> int:
        """Workers of the gang, those among them that are lost, too."""
        return self.count(*SYNCHRONOUS) + len(self.lost)

    @property
    def former(self) -> Task | None:
        """The name of this process's task in the whole gang."""
        if self.task is None or not self.lost:
            return self.task
        place = self._places[self.tasks.index(self.task)]
        led = self.count("chief")
        return Task("worker", place - led) if place or not led else Task("chief")

    @property
    def _places(self) -> list[int]:
        """For each worker here, its number in the whole gang."""
        return [place for place in range(self.whole) if place not in self.lost]

    def address_of(self, task: Task) -> tuple[str, int]:
        """Host and port of a task; an IPv6 address is in brackets."""
        host, _, port = self.addresses[task.type][task.index].rpartition(":")
        return host, int(port)

    def count(self, *types: str) -> int:
        """Number of tasks of the given types."""
        return sum(len(self.addresses.get(kind, ())) for kind in types)

    def tf_config(self) -> str:
        """The cluster as the value of the environment variable TF_CONFIG (JSON)."""
        cluster = {kind: list(hosts) for kind, hosts in self.addresses.items()}
        config: dict[str, Any] = {"cluster": cluster}
        if self.task:
            config["task"] = {"type": self.task.type, "index": self.task.index}
        return json.dumps(config)

    def share_gpus(self, environ: MutableMapping[str, str] = os.environ) -> ClusterSpec:
        """Restricts this task to its share of the machine's GPUs.

        For a cluster with all tasks on this machine: the tasks that compute gradients
        divide the visible GPUs evenly, e.g. 4 GPUs over 2 workers: "0,1" and "2,3". The
        other tasks get none. The GPUs of workers that are lost stay unused.

        Args:
          environ: The environment; its CUDA_VISIBLE_DEVICES is set to the share.

        Returns:
          The same cluster with the share in `gpus`.
        """
        gpus = visible_gpus(environ)
        if not gpus or self.task is None:
            return self
        types = ("worker",) if self.count("ps") else SYNCHRONOUS
        computing = [task for task in self.tasks if task.type in types]
        share: tuple[str, ...] = ()
        if self.task in computing:
            each = len(gpus) // (len(computing) + len(self.lost))
            place = computing.index(self.task)
            first = (self._places[place] if self.lost else place) * each
            share = gpus[first : first + each]
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(share) or "-1"
        return dataclasses.replace(self, gpus=len(share))


def visible_gpus(
    environ: Mapping[str, str] = os.environ, root: str | Path = "/"
) -> tuple[str, ...]:
    """The NVIDIA GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them.

    Neither CUDA nor TensorFlow is loaded.

    Args:
      environ: The process's environment.
      root: Root of the file system with the devices.
    """
    numbers = [str(number) for number in range(_gpu_devices(Path(root)))]
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not numbers:
        return tuple(numbers)
    names = []
    for name in chosen.split(","):
        name = name.strip()
        if name not in numbers and not name.startswith(("GPU-", "MIG-")):
            break  # like CUDA: an unknown name hides the names after it
        names.append(name)
    return tuple(dict.fromkeys(names))


def _gpu_devices(root: Path) -> int:
    """Number of GPUs by device files; before the first use only the driver has them."""
    devices = list(root.glob("dev/nvidia[0-9]*"))
    return len(devices) or len(list(root.glob("proc/driver/nvidia/gpus/*")))


def _tpu(environ: Mapping[str, str]) -> str | None:
    """The TPU's name, its `grpc://` address, or `local` for one in this machine."""
    name, colab, gke, names, kind = (environ.get(v, "") for v in TPU_VARIABLES)
    hosts = [host for host in names.split(",") if host]
    if name:
        return name
    if colab:
        return colab if "://" in colab else f"grpc://{colab}"
    if gke:
        return gke
    if len(hosts) > 1:  # a slice over several hosts of GKE
        return ",".join(f"grpc://{host}:{TPU_PORT}" for host in hosts)
    if hosts or kind:
        return "local"
    return None


def _cluster(
    environ: Mapping[str, str],
) -> tuple[dict[str, tuple[str, ...]], Task | None]:
    for variable, names in zip(CLUSTER_VARIABLES, ({}, _VERTEX_POOLS), strict=True):
        if environ.get(variable, "").strip() not in ("", "{}"):
            return _Reader(variable, environ[variable], names).read()
    return {}, None


class _Reader:
    """Parses and validates one environment variable that describes a cluster.

    Args:
      variable: Name of the variable.
      text: Its value.
      names: Task type by the variable's own name for it, where the two differ.
    """

    def __init__(self, variable: str, text: str, names: Mapping[str, str]):
        self._variable = variable
        self._text = text
        self._names = names

    def read(self) -> tuple[dict[str, tuple[str, ...]], Task]:
        """Returns the addresses by task type, and this process's task.

        Raises:
          UserError: The value is incomplete, invalid or contradictory.
        """
        config = self._parsed()
        addresses = self._addresses(config.get("cluster"))
        task = self._task(config.get("task"), addresses)
        # Evaluators do not train, and the chief evaluates.
        addresses.pop("evaluator", None)
        return addresses, task

    def _parsed(self) -> dict[str, Any]:
        try:
            config = json.loads(self._text)
        except ValueError as error:
            raise self._refusal(f"is not JSON ({error}): {self._text[:80]!r}") from None
        if not isinstance(config, dict):
            raise self._refusal(f"is not a JSON object: {self._text[:80]!r}")
        return config

    def _addresses(self, cluster: Any) -> dict[str, tuple[str, ...]]:
        if not isinstance(cluster, dict) or not cluster:
            raise self._refusal(
                f"names no cluster: `cluster` is {json.dumps(cluster)}, expected the "
                "addresses of each task by type"
            )
        addresses: dict[str, tuple[str, ...]] = {}
        for name, hosts in cluster.items():
            kind = self._type(name, "cluster")
            if not isinstance(hosts, list) or not all(map(_is_address, hosts)):
                raise self._refusal(
                    f"`cluster.{name}` is {json.dumps(hosts)}, expected a list of "
                    f"`HOST:PORT`, PORT from {_PORTS[0]} to {_PORTS[-1]}"
                )
            if hosts:
                addresses[kind] = tuple(hosts)
        self._check_cluster(addresses)
        return addresses

    def _type(self, name: Any, key: str) -> str:
        kind = self._names.get(name, name)
        if kind not in _TYPES:
            allowed = ", ".join(self._names or _TYPES)
            raise self._refusal(
                f"`{key}` has a task of type {json.dumps(name)}, allowed: {allowed}"
            )
        return kind

    def _check_cluster(self, addresses: Mapping[str, tuple[str, ...]]) -> None:
        every = [address for hosts in addresses.values() for address in hosts]
        twice = sorted({address for address in every if every.count(address) > 1})
        if twice:
            raise self._refusal(
                f"gives {', '.join(twice)} to more than one task; each needs its own"
            )
        if len(addresses.get("chief", ())) > 1:
            raise self._refusal(
                f"names {len(addresses['chief'])} chiefs, expected one; the others are "
                "of type `worker`"
            )

    def _task(self, task: Any, addresses: Mapping[str, tuple[str, ...]]) -> Task:
        known = ", ".join(f"{kind} ({len(hosts)})" for kind, hosts in addresses.items())
        if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
            raise self._refusal(
                f"does not name this process's task: `task` is {json.dumps(task)}"
                f"; the cluster has {known}"
            )
        kind = self._type(task["type"], "task.type")
        if kind == "evaluator":
            raise self._refusal(
                "makes this process an evaluator, but Strategos uses none: the "
                "chief's process evaluates. Start no such task"
            )
        if kind not in addresses:
            raise self._refusal(
                f"makes this process a {task['type']}, but its cluster has only {known}"
            )
        index = str(task["index"])
        if not index.isdecimal() or int(index) >= len(addresses[kind]):
            last = len(addresses[kind]) - 1
            raise self._refusal(
                f"makes this process {task['type']} number {json.dumps(task['index'])},"
                f" but its cluster has {known}: `task.index` must be "
                + (f"0 to {last}" if last else "0")
            )
        return Task(kind, int(index))

    def _refusal(self, what: str) -> UserError:
        return UserError(
            f"{self._variable} {what}. Set it as {_EXAMPLE}, the same cluster on every "
            f"host, or unset it to train without one."
        )


def _is_address(value: Any) -> bool:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and int(match[1]) in _PORTS

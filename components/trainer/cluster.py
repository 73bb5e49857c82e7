"""What the environment says of the cluster: read once, here, into one value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

SYNCHRONOUS = ("chief", "worker")
"""Task types that hold replicas of a synchronous gang."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a cluster."""

    type: str
    index: int = 0

    @property
    def name(self) -> str:
        """As in log lines and errors: `worker-0`."""
        return f"{self.type}-{self.index}"


@dataclasses.dataclass(frozen=True)
class ClusterSpec:
    """The processes that train together, and which of them this one is.

    Attributes:
      addresses: `host:port` of each task by type; empty for a process on its own.
      task: This process's own place; None outside of a cluster.
      tpu: Name or address of the TPU that the environment names, or None.
      gpus: GPUs that this process may use.
    """

    addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    task: Task | None = None
    tpu: str | None = None
    gpus: int = 0

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
        """The task that publishes: `chief`, or else the first worker."""
        first = [task for task in self.tasks if task.type in SYNCHRONOUS]
        return first[0] if first else None

    @property
    def is_chief(self) -> bool:
        """Whether this process publishes; so does one on its own."""
        return self.task is None or self.task == self.chief

    def at(self, task: Task) -> ClusterSpec:
        """The same cluster, seen from `task`."""
        return dataclasses.replace(self, task=task)

    def tf_config(self) -> str:
        """As the environment variable TF_CONFIG."""
        cluster = {kind: list(found) for kind, found in self.addresses.items()}
        config = {"cluster": cluster}
        if self.task:
            config["task"] = {"type": self.task.type, "index": self.task.index}
        return json.dumps(config)

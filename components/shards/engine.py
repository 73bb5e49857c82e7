"""Settings of how data are processed, not of the result: never part of a cache key.

The orchestrator writes an `Engine` to an environment variable of the process that runs
executors. Under other orchestrators the variable is missing, and the defaults apply.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strategos.components.limits import control_groups

VARIABLE = "STRATEGOS_ENGINE"
"""Name of the environment variable that holds an `Engine` as JSON."""

_SECONDS = 5.0
_OTHERS = 1_500 << 20  # bytes that the other processes of a run take
_OF_HELPER = 400 << 20


@dataclasses.dataclass(frozen=True)
class Engine:
    """The runner that processes shards of data, and its settings.

    The fields are the settings of `run.engine` and its `options`, with times in
    seconds. The configuration describes them and takes its defaults from here.

    Attributes:
      memory: Bytes that all processes of the run may take; None for three quarters of
        the memory that this process may use.
      exchange: URL of a folder that this process and the workers see, set where an
        executor's own files are local copies; see `files/exchange`.
    """

    runner: str = "direct"
    workers: int | None = None
    job_endpoint: str | None = None
    master: str | None = None
    taskmanagers: int = 1
    timeout: float | None = None
    stall_timeout: float = 1800.0
    project: str | None = None
    region: str | None = None
    temp_location: str | None = None
    image: str | None = None
    memory: int | None = None
    exchange: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def threads(self) -> int:
        """Threads of this process that work on data."""
        return self.workers or available_cores()

    @property
    def bytes(self) -> int:
        """Memory that all processes of the run may take."""
        return control_groups.memory() * 3 // 4 if self.memory is None else self.memory

    @property
    def helpers(self) -> int:
        """Number of helper processes that fit the memory, see `helpers.py`."""
        return max(0, (self.bytes - _OTHERS) // _OF_HELPER)

    def to_environment(self) -> dict[str, str]:
        """The environment variable that passes this engine to another process."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Engine:
        """Reads the engine from the environment; a missing variable means defaults.

        Args:
          environ: The environment, by default this process's.
        """
        return cls(**json.loads(environ.get(VARIABLE, "{}")))


def available_cores(root: str | Path = "/") -> int:
    """Number of cores that this process may use, at least 1.

    The processor affinity and the quotas of the control groups bound it, which
    `os.cpu_count` ignores: in a container with two of 64 cores it is 2.

    Args:
      root: Root of the file system with `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0))
    groups = control_groups.folders("cpu", Path(root))
    quotas = [quota for quota in map(_quota, groups) if quota]
    return max(1, min([cores, *map(round, quotas)]))


def unreachable(address: str) -> str:
    """The error of a connection to an address; "" if a server accepts it.

    Args:
      address: `HOST:PORT`.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)
    return ""


def _quota(group: Path) -> float | None:
    """Cores that a control group allows; None for no bound, or if it is not visible."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # `max`
        return None

"""`srun python -m …jobs.slurm_task FOLDER`: a task of a job under Slurm.

Slurm gives each process its rank; the addresses come from the nodes of the job.
`tf.distribute`'s SlurmClusterResolver does not serve: it sorts the names of hosts as
text, needs nvidia-smi, and gives all jobs on a host the same ports.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers.jobs import task
from strategos.components.trainer.launchers.jobs.attempt import Attempt

HOSTS, NODES = "hosts.txt", "nodes.txt"
"""Files of an attempt: the output of `scontrol show hostnames` and `show node -o`."""

_FIRST_PORT = 20000
_PORTS = 12288  # below the ports that Linux gives to clients
_PORTS_OF_JOB = 64


def addresses(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The address of each task of this process's step, by rank.

    Args:
      folder: Folder of the attempt, with the files `HOSTS` and `NODES`.
      environ: The environment that srun gave this process.
    """
    pairs = re.findall(r"^NodeName=(\S+).*? NodeAddr=(\S+)", _text(folder, NODES), re.M)
    address = dict(pairs)  # the names of nodes need not resolve
    hosts = _text(folder, HOSTS).split()
    counts = list(_counts(environ["SLURM_STEP_TASKS_PER_NODE"]))
    places = [
        address.get(host, host)
        for host, count in zip(hosts, counts, strict=True)
        for _ in range(count)
    ]
    job = int(environ["SLURM_JOB_ID"])
    first = _FIRST_PORT + job * _PORTS_OF_JOB % _PORTS
    return [f"{place}:{first + rank}" for rank, place in enumerate(places)]


def _counts(text: str) -> Iterator[int]:
    """The numbers of Slurm's short form: 2,1,1 for `2,1(x2)`."""
    for count, repeated in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        yield from [int(count)] * int(repeated or 1)


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    attempt = Attempt(folder)
    rank = int(os.environ["SLURM_PROCID"])
    places = addresses(folder, os.environ)
    cluster = ClusterSpec.of(attempt.tasks, places).at(attempt.tasks[rank])
    os.environ["TF_CONFIG"] = cluster.tf_config()
    task.run(attempt)

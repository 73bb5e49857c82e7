"""A real Slurm of two nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import server

_PACKAGES = "slurm-wlm munge"
_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
_CONF = """
ClusterName=strategos
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
ReturnToService=2
SlurmdTimeout=15
MessageTimeout=20
KillWait=30
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 \
Port=[{ports[1]},{ports[2]}] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=n1 MaxTime=INFINITE State=UP
"""


class Slurm:
    """A cluster with the nodes n1 and n2; its address is the file `SLURM_CONF`."""

    def __init__(self, ports: list[int]):
        # Not in pytest's folder: munged wants one that all users may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self._ports = ports
        self.address = str(self._folder / "slurm.conf")
        self._daemons: dict[str, subprocess.Popen] = {}

    def up(self) -> None:
        """Starts its daemons; returns once both nodes are idle."""
        self._programs = {name: server.program(name, _PACKAGES) for name in _COMMANDS}
        server.require_root("a Slurm for tests")
        self._folder.chmod(0o755)
        self._start()
        until = time.monotonic() + 60
        while not self._is_ready():
            if time.monotonic() > until:
                logs = self._folder.glob("*.log")
                ends = {log.name: log.read_text()[-300:] for log in logs}
                raise server.MissingError(f"Slurm does not start here: {ends}")
            time.sleep(0.1)

    def _start(self) -> None:
        for name in ("munge", "state", "spool-n1", "spool-n2"):
            (self._folder / name).mkdir(mode=0o755)
        key = self._folder / "munge" / "key"
        key.touch(0o400)
        key.write_bytes(os.urandom(128))
        munge = self._folder / "munge"
        names = ("socket", "key-file", "log-file", "pid-file", "seed-file")
        files = [f"--{name}={munge / name.removesuffix('-file')}" for name in names]
        self._run("munged", "-F", *files)
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(host=host, folder=self._folder, ports=self._ports)
        Path(self.address).write_text(text)
        for name in ("slurmctld", "n1", "n2"):
            self.power_on(name)

    def power_on(self, name: str) -> None:
        """Starts the controller or the daemon of a node."""
        node = name.startswith("n")
        self._run(name, *(("-D", "-N", name) if node else ("-D",)))

    def _run(self, name: str, *arguments: str) -> None:
        program = "slurmd" if name.startswith("n") else name
        with (self._folder / f"{name}.log").open("a") as log:
            self._daemons[name] = subprocess.Popen(
                [self._programs[program], *arguments],
                env={**os.environ, "SLURM_CONF": self.address},
                stdout=log,
                stderr=log,
            )

    def power_off(self, name: str) -> None:
        """Kills a daemon as a machine that loses power does."""
        self._daemons[name].kill()
        self._daemons.pop(name).wait()

    def lose(self, node: str) -> None:
        """Kills a node's daemon and all that it has started."""
        self.power_off(node)
        self._kill(f"SLURMD_NODENAME={node}", f"-N{node}")

    def _is_ready(self) -> bool:
        done = self.command("sinfo", "-h", "-p", "debug", "-o", "%T %D")
        return done.stdout.split() == ["idle", "2"]

    def command(self, *command: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "SLURM_CONF": self.address}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60
        )

    def jobs(self, partition: str = "debug") -> list[str]:
        """Ids of the jobs of a partition that have not ended."""
        command = ("squeue", "-h", "-p", partition, "-o", "%i")
        return self.command(*command).stdout.split()

    def down(self) -> None:
        """Ends it, and all that it has started."""
        for name in list(self._daemons):
            self.power_off(name)
        self._kill(f"SLURM_CONF={self.address}")
        shutil.rmtree(self._folder)

    def _kill(self, *wanted: str) -> None:
        """Kills the processes of this cluster with one of these in the environment."""
        mine = f"SLURM_CONF={self.address}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (process / "environ").read_bytes().split(b"\0")
                if mine in variables and any(w.encode() in variables for w in wanted):
                    os.kill(int(process.name), signal.SIGKILL)

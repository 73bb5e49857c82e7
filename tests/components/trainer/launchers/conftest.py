"""A real Slurm of two nodes on this machine; launchers that submit jobs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from strategos.components.trainer.launchers import launch
from strategos.components.trainer.launchers.jobs.attempt import Attempts
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

EPOCHS = 4  # of `undisturbed`
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
_LAUNCH = """
import json, sys
from strategos.components import events, worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

spec, operation, sink = map(json.loads, sys.argv[1:])
events.open_sink(sink, node="Trainer")
try:
    facts = launch(WorkerSpec.from_json(spec), Operation.from_json(operation))
except UserError as error:
    print(f"ERROR {error}", file=sys.stderr)
    worker_process.leave(1)
print(json.dumps(facts))
worker_process.leave(0)
"""


class Slurm:
    """The daemons of a cluster, none of which outlives the test."""

    def __init__(self, folder: Path, ports: list[int]):
        self.folder, self.ports = folder, ports
        self.conf = folder / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        for name in ("munge", "state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.touch(0o400)
        key.write_bytes(os.urandom(128))
        munge = self.folder / "munge"
        names = ("socket", "key-file", "log-file", "pid-file", "seed-file")
        files = [f"--{name}={munge / name.removesuffix('-file')}" for name in names]
        self.daemon("munged", "-F", *files)
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(host=host, folder=self.folder, ports=self.ports)
        self.conf.write_text(text)
        for name in ("slurmctld", "n1", "n2"):
            self.up(name)

    def up(self, name: str) -> None:
        """Starts the controller or the daemon of a node."""
        node = name.startswith("n")
        self.daemon(name, *(("-D", "-N", name) if node else ("-D",)))

    def daemon(self, name: str, *arguments: str) -> None:
        program = "slurmd" if name.startswith("n") else name
        with (self.folder / f"{name}.log").open("a") as log:
            self._daemons[name] = subprocess.Popen(
                [_found(program), *arguments],
                env={**os.environ, "SLURM_CONF": str(self.conf)},
                stdout=log,
                stderr=log,
            )

    def down(self, name: str) -> None:
        """Kills a daemon as a machine that loses power does."""
        self._daemons[name].kill()
        self._daemons.pop(name).wait()

    def lose(self, node: str) -> None:
        """Kills a node's daemon and all that it has started."""
        self.down(node)
        self._kill(f"SLURMD_NODENAME={node}", f"-N{node}")

    def is_ready(self) -> bool:
        done = self.command("sinfo", "-h", "-p", "debug", "-o", "%T %D")
        return done.stdout.split() == ["idle", "2"]

    def command(self, *command: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60
        )

    def jobs(self, partition: str = "debug") -> list[str]:
        """Ids of the jobs of a partition that have not ended."""
        command = ("squeue", "-h", "-p", partition, "-o", "%i")
        return self.command(*command).stdout.split()

    def end(self) -> None:
        for name in list(self._daemons):
            self.down(name)
        self._kill(f"SLURM_CONF={self.conf}")

    def _kill(self, *wanted: str) -> None:
        """Kills the processes of this cluster with one of these in the environment."""
        mine = f"SLURM_CONF={self.conf}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (process / "environ").read_bytes().split(b"\0")
                if mine in variables and any(w.encode() in variables for w in wanted):
                    os.kill(int(process.name), signal.SIGKILL)


class Launcher:
    """A process that trains by a launcher that submits jobs.

    Args:
      start: Starts Python: `start(code, *words, stdout=…, stderr=…)`.
      name: Of the launcher.
      job: The settings of its jobs.
    """

    def __init__(self, start, name, job, folder, spec, **operation):
        self.folder, self.log = folder, folder / "launcher.log"
        operation = {
            "launcher": name,
            "checkpoint_every": "5 steps",
            "start_timeout": 1200.0,
            "stall_timeout": 1200.0,  # trainings that wait are no hanging ones
            "job": job,
            **operation,
        }
        self._given = (spec.to_json(), operation, str(folder / "events"))
        self._start = start
        self.process = None

    def start(self):
        words = map(json.dumps, self._given)
        with self.log.open("a") as log:
            self.process = self._start(_LAUNCH, *words, stdout=log, stderr=log)
        return self

    def wait_for(self, look, seconds=400):
        """Waits for `look()`, or for a text in the log, while the launcher lives."""
        until = time.monotonic() + seconds
        while not (look() if callable(look) else look in self.log.read_text()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.2)

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        return self.process.wait(60)

    def facts(self):
        assert self.process.wait(500) == 0, self.log.read_text()
        return json.loads(self.log.read_text().splitlines()[-1])

    def error(self):
        assert self.process.wait(500) == 1, self.log.read_text()
        return self.log.read_text().partition("ERROR ")[2]


def _found(program):
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@pytest.fixture(scope="module")
def slurm(free_ports):
    """A real Slurm with the nodes n1 and n2."""
    missing = [name for name in _COMMANDS if _found(name) is None]
    if missing:
        pytest.skip(f"a Slurm needs {', '.join(missing)} (slurm-wlm, munge)")
    if os.geteuid() != 0:
        pytest.skip("a Slurm for tests needs root")
    # Not in pytest's folder: munged wants one that all users may enter.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    cluster = Slurm(folder, free_ports(3))
    try:
        cluster.start()
        until = time.monotonic() + 60
        while not cluster.is_ready():
            if time.monotonic() > until:
                logs = {p.name: p.read_text()[-300:] for p in folder.glob("*.log")}
                pytest.skip(f"Slurm does not start on this machine: {logs}")
            time.sleep(0.1)
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def launcher(slurm, make_launcher):
    """A launcher that is not started yet: `launcher(spec, settings, **operation)`."""

    def start(code, *words, **streams):
        env = {**os.environ, "SLURM_CONF": str(slurm.conf)}
        return subprocess.Popen(
            [sys.executable, "-c", code, *words], env=env, **streams
        )

    def make(spec, settings=None, **operation):
        job = {
            "partition": None,
            "account": None,
            "time_limit": None,
            "pending_timeout": 300.0,
            "options": ["--cpus-per-task=1"],
            **(settings or {}),
        }
        return make_launcher(start, "slurm", job, spec, **operation)

    return make


@pytest.fixture(scope="module")
def make_launcher():
    """Makes a `Launcher`: `make_launcher(start, name, job, spec, **operation)`."""
    made = []

    def make(start, name, job, spec, **operation):
        folder = Path(spec.checkpoint_dir).parent  # one log for those of one training
        made.append(Launcher(start, name, job, folder, spec, **operation))
        return made[-1]

    yield make
    for each in made:
        if each.process and each.process.poll() is None:
            each.kill(signal.SIGTERM)


@pytest.fixture(scope="module")
def undisturbed(make_spec):
    """The weights and the loss by epoch of one device."""
    spec = make_spec(distribution={"strategy": "one_device"}, epochs=EPOCHS)
    history = launch(spec, Operation())["history"]
    return weights(spec), history


@pytest.fixture(scope="module")
def assert_trained(undisturbed):
    """Checks that a training came to the same: `assert_trained(spec, facts)`."""
    expected, history = undisturbed

    def check(spec, facts, restarts=0):
        found = weights(spec)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        for metric, values in history.items():
            assert facts["history"][metric] == pytest.approx(values, abs=1e-5)
        assert facts["restarts"] == restarts
        left = {path.name for path in Path(spec.model_dir).iterdir()}
        assert left >= {"Format-Serving", "Format-Weights", "trainer.json"}
        assert not Path(spec.checkpoint_dir, "jobs").exists()

    return check


def weights(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in sorted(names) if "VARIABLE_VALUE" in n}


@pytest.fixture
def attempts(tmp_path):
    """Makes the attempts of a training: `attempts(**distribution)`."""

    def make(**distribution):
        spec = WorkerSpec(
            folder="code",
            module="model",
            label="late",
            train_files=(),
            eval_files=(),
            transform_graph="graph",
            schema_file="schema",
            model_dir="model",
            log_dir="log",
            checkpoint_dir=str(tmp_path / "checkpoints" / "key"),
            batch_size=1,
            epochs=1,
            seed=1,
            distribution=distribution,
        )
        return Attempts(spec, Operation())

    return make

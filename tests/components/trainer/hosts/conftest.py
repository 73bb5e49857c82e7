"""A run that waits for workers, and its workers, each in a separate process."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strategos.components.trainer.spec import WorkerSpec

RUN = """
import json, sys
from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

spec, operation, sink = map(json.loads, sys.argv[1:])
events.open_sink(sink, node="Trainer")
try:
    facts = launch(WorkerSpec.from_json(spec), Operation.from_json(operation))
except UserError as error:
    sys.exit(f"ERROR {error}")
print(json.dumps(facts))
"""

# Does the same as `strategos worker`, with a task that needs no TensorFlow.
WORKER = """
import sys
from strategos.components.errors import UserError
from strategos.components.trainer.gang import host
from strategos.components.trainer.hosts import worker

folder, code, host._MODULE = sys.argv[1:]
try:
    worker.join(folder, code, 20.0)
except UserError as error:
    sys.exit(f"ERROR {error}")
"""
HOST = """
import os, signal, time
from pathlib import Path
from strategos.components import events, worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import preemption, watchdog
from strategos.components.trainer.hosts import worker

marks = Path(os.environ["MARKS"])

def host(request):
    BEFORE
    cluster = ClusterSpec.from_environment()
    membership = worker.Membership(cluster=cluster, **request["membership"])
    limits = watchdog.Limits(stall_timeout=STALL)
    facts = worker.train(membership, cluster, work, limits) or {}
    EXPORT
    return facts

def work(cluster, reporter, attempt):
    reporter.step(1)
    name = cluster.task.name
    WORK

worker_process.serve(host)
"""


def _ignore_interrupts():
    """Ignores SIGINT, as in a process that a shell starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclasses.dataclass
class Site:
    """A root that several hosts share; processes act as the hosts."""

    folder: Path
    free_ports: Callable[[int], list[int]]

    def __post_init__(self):
        self.trainer = self.folder / "root" / "late" / "Trainer"
        self.marks = self.folder / "marks"
        for path in (self.trainer / "model" / "1", self.marks, self.folder / "code"):
            path.mkdir(parents=True)
        data = self.folder / "root" / "late" / "data"
        data.write_text("rows")
        self.code("run", "x = 1")
        self.spec = WorkerSpec(
            folder=str(self.folder / "code" / "run"),
            module="model",
            label="late",
            train_files=(str(data),),
            eval_files=(str(data),),
            transform_graph=str(data.parent / "graph"),
            schema_file=str(data),
            model_dir=str(self.trainer / "model" / "1"),
            log_dir=str(self.trainer / "model_run" / "1"),
            checkpoint_dir=str(self.trainer / "checkpoints" / "key"),
            batch_size=1,
            epochs=1,
            seed=1,
            distribution={"strategy": "multi_worker_mirrored"},
        )
        chief, worker = self.free_ports(2)
        self.cluster = {
            "chief": [f"127.0.0.1:{chief}"],
            "worker": [f"127.0.0.1:{worker}"],
        }
        self.processes = []

    def code(self, name: str, text: str) -> Path:
        """A host's copy of the user's code."""
        folder = self.folder / "code" / name
        folder.mkdir(exist_ok=True)
        (folder / "model.py").write_text(text)
        return folder

    def run(self, **operation):
        """A run that calls for workers."""
        operation = {"launcher": "external", "start_timeout": 20.0, **operation}
        sink = str(self.folder / "events")
        given = (self.spec.to_json(), operation, sink)
        return self._start(RUN, *map(json.dumps, given))

    def worker(
        self,
        task: str,
        work: str = "return {}",
        *,
        before: str = "pass",
        export: str = "pass",
        code: str = "run",
        cluster: dict[str, list[str]] | None = None,
        stall: float = 30.0,
    ):
        """A worker whose host does `before`, its task `work`, the chief's `export`."""
        place = {"cluster": cluster or self.cluster, "task": {"type": task, "index": 0}}
        script = HOST.replace("STALL", str(stall))
        parts = {"BEFORE": before, "WORK": work, "EXPORT": export}
        for name, lines in parts.items():
            inner = textwrap.indent(lines, "    ").lstrip()
            script = script.replace(f"    {name}\n", f"    {inner}\n")
        host = f"host_{len(self.processes)}"
        (self.marks / f"{host}.py").write_text(script)
        path = os.pathsep.join((str(self.marks), os.environ.get("PYTHONPATH", "")))
        env = {"MARKS": str(self.marks), "PYTHONPATH": path}
        env["TF_CONFIG"] = json.dumps(place)
        folder = self.folder / "code" / code
        return self._start(WORKER, self.trainer, folder, host, **env)

    def state(self, task: str) -> str:
        """The state that the worker last reported."""
        found = list(self.trainer.glob(f"gang/*/{task}-0.json"))
        return json.loads(found[0].read_text())["state"] if found else ""

    def _start(self, code, *arguments, **env):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_ignore_interrupts,
        )
        self.processes.append(process)
        return process

    def mark(self, name: str) -> str:
        """Waits until a task writes `marks / name`; returns the text."""
        path = self.marks / name
        return self.awaited(lambda: path.exists() and path.read_text())

    @staticmethod
    def awaited(look, seconds=20.0):
        """Waits until `look` returns something true, and returns that."""
        until = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < until, f"no result within {seconds} s"
            time.sleep(0.02)
        return found

    @staticmethod
    def ended(process, seconds=20):
        """Waits for the end of a process; returns exit code and output."""
        out, error = process.communicate(timeout=seconds)
        return process.returncode, out + error


@pytest.fixture
def site(tmp_path, free_ports):
    made = Site(tmp_path, free_ports)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()

"""`strategos worker` on two hosts: network namespaces with separate addresses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
ADDRESSES = {"chief": "10.77.83.1", "worker": "10.77.83.2"}
EPOCHS = 6
PORT = 2222  # must be free only in its own namespace

PIPELINE = """
name: late
label: late
data: {{examples: "{folder}/none/*.csv", split: {{train: 8, eval: 2}}}}
transform: {{module: preprocessing}}
trainer:
  module: model
  distribution: {{strategy: multi_worker_mirrored, launcher: external}}
run: {{root: "{root}"}}
"""

RUN = """
import json, sys
from strategos.components import events
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

spec, operation, sink = map(json.loads, sys.argv[1:])
events.open_sink(sink, node="Trainer")
facts = launch(WorkerSpec.from_json(spec), Operation.from_json(operation))
print(json.dumps(facts))
"""

# Slow enough for hosts to come and go between two checkpoints.
SLOW = """
import time

class Slow(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.3)

def callbacks(context):
    return [Slow()]
"""

STRATEGOS = "import sys; from strategos.pipeline import cli; sys.exit(cli.main())"
COLD = [sys.executable, "-c", STRATEGOS]


@pytest.fixture
def namespaces(make_namespaces):
    """A network namespace for each task, joined by a cable."""
    return make_namespaces({task: f"{ip}/24" for task, ip in ADDRESSES.items()})


class Hosts:
    """A run, and a host for each task of its training."""

    def __init__(self, folder, workload, spec, namespaces, warm, **operation):
        self.folder, self._namespaces, self._warm = folder, namespaces, warm
        self._processes = []
        root = folder / "root"
        for task in namespaces:
            code = folder / task  # each host has its own copy
            shutil.copytree(workload.folder, code)
            text = PIPELINE.format(folder=code, root=root)
            (code / "pipeline.yaml").write_text(text)
        operation |= {"launcher": "external", "checkpoint_every": "5 steps"}
        given = (spec.to_json(), operation, str(folder / "events"))
        self.run = self._start(
            "run", [sys.executable, "-c", RUN, *map(json.dumps, given)]
        )

    def start(self, task, cold=False):
        """`strategos worker` on the host of `task`; its processes start warm."""
        cluster = {kind: [f"{host}:{PORT}"] for kind, host in ADDRESSES.items()}
        place = {"cluster": cluster, "task": {"type": task, "index": 0}}
        yaml = self.folder / task / "pipeline.yaml"
        there = ["ip", "netns", "exec", self._namespaces[task]]
        command = [*there, *(COLD if cold else self._warm.cli()), "worker", str(yaml)]
        env = {"TF_CONFIG": json.dumps(place), "NETWORK": self._namespaces[task]}
        return self._start(task, command, **env)

    def _start(self, name, command, **env):
        log = (self.folder / f"{name}.log").open("a")
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT
        )
        self._processes.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, text, seconds=120):
        """Waits until the run has reported `text`."""
        until = time.monotonic() + seconds
        events = self.folder / "events"
        while not (events.exists() and text in events.read_text()):
            assert self.run.poll() is None, self.log("run")
            assert time.monotonic() < until, self.log("run")
            time.sleep(0.05)

    def facts(self):
        """The output of the run, after its end."""
        assert self.run.wait(240) == 0, self.log("run")
        return json.loads(self.log("run").splitlines()[-1])

    def end(self):
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def hosts(request, tmp_path, workload, make_spec, namespaces, warm_tensorflow):
    """The hosts of a run; `request.param` has settings of its operation."""
    trainer = tmp_path / "root" / "late" / "Trainer"
    shared = trainer.parent / "data"  # what the hosts see of the run's data
    shutil.copytree(workload.root / "transformed", shared)
    model = Path(workload.folder, "model.py").read_text()
    workload.write_module("slow", model + SLOW)
    spec = make_spec(
        module="slow" if hasattr(request, "param") else "model",
        distribution=GANG,
        epochs=EPOCHS,
        train_files=tuple(map(str, shared.glob("Split-train/*"))),
        eval_files=tuple(map(str, shared.glob("Split-eval/*"))),
        model_dir=str(trainer / "model" / "1"),
        log_dir=str(trainer / "model_run" / "1"),
        checkpoint_dir=str(trainer / "checkpoints" / "key"),
    )
    Path(spec.model_dir).mkdir(parents=True)
    operation = getattr(request, "param", {})
    made = Hosts(tmp_path, workload, spec, namespaces, warm_tensorflow, **operation)
    yield made
    made.end()


@pytest.fixture(scope="module")
def on_one_device(make_spec, train_only):
    return train_only(make_spec(distribution={"strategy": "one_device"}, epochs=EPOCHS))


def assert_trained_as(expected, hosts, facts, workers=2):
    for metric, values in expected["history"].items():
        assert facts["history"][metric] == pytest.approx(values, abs=1e-5)
    assert (facts["workers"], facts["replicas"]) == (workers, workers)
    model = hosts.folder / "root" / "late" / "Trainer" / "model" / "1"
    left = {path.name for path in model.iterdir()}
    assert left == {"Format-Serving", "Format-Weights", "trainer.json"}


@pytest.mark.long
def test_two_hosts_train_as_one_device(hosts, on_one_device):
    workers = [hosts.start("worker"), hosts.start("chief")]
    facts = hosts.facts()
    assert facts["restarts"] == 0
    assert_trained_as(on_one_device, hosts, facts)
    assert [worker.wait(30) for worker in workers] == [0, 0], hosts.log("worker")
    assert "joining run" in hosts.log("worker") and "[worker-0] " in hosts.log("worker")


@pytest.mark.faults
def test_hosts_that_are_lost_and_come_back_change_nothing(hosts, on_one_device):
    workers = {name: hosts.start(name) for name in ("chief", "worker")}
    for task, epoch in (("chief", 2), ("worker", 4)):
        hosts.wait_for(f"epoch {epoch}/{EPOCHS}")
        workers[task].send_signal(signal.SIGKILL)
        workers[task].wait()
        workers[task] = hosts.start(task, cold=task == "chief")
    facts = hosts.facts()
    assert facts["restarts"] == 2
    assert_trained_as(on_one_device, hosts, facts)
    assert [worker.wait(30) for worker in workers.values()] == [0, 0]


@pytest.mark.faults
@pytest.mark.parametrize("hosts", [{"min_workers": 1}], indirect=True)
def test_the_other_host_trains_to_the_end_and_exports(hosts, on_one_device):
    workers = {name: hosts.start(name) for name in ("chief", "worker")}
    hosts.wait_for(f"epoch 2/{EPOCHS}")
    workers["chief"].kill()
    workers["chief"].wait()
    facts = hosts.facts()
    assert_trained_as(on_one_device, hosts, facts, workers=1)
    assert "chief-0 is lost (away for 3 s): 1 of 2 workers go on" in hosts.log("run")
    assert facts["reason"].endswith("; trained by 2 and 1 workers in turn")
    assert workers["worker"].wait(30) == 0


@pytest.mark.faults
@pytest.mark.parametrize("hosts", [{"min_workers": 1}], indirect=True)
def test_a_host_that_returns_is_taken_in(hosts, on_one_device):
    workers = {name: hosts.start(name) for name in ("chief", "worker")}
    hosts.wait_for(f"epoch 2/{EPOCHS}")
    workers["worker"].kill()
    workers["worker"].wait()
    hosts.wait_for("worker-0 is lost (away for 3 s)")
    workers["worker"] = hosts.start("worker")
    facts = hosts.facts()
    assert_trained_as(on_one_device, hosts, facts)
    assert "worker-0 returns: 2 of 2 workers go on from step" in hosts.log("run")
    assert facts["reason"].endswith("; trained by 2, 1 and 2 workers in turn")
    assert [worker.wait(30) for worker in workers.values()] == [0, 0]


@pytest.mark.faults
@pytest.mark.parametrize("hosts", [{"check_bytes": 2_000_000}], indirect=True)
def test_a_check_of_the_cluster_measures_the_bandwidth_of_the_cable(hosts, namespaces):
    for name in namespaces.values():
        shown = subprocess.check_output(["ip", "-n", name, "-br", "link"], text=True)
        cable = next(x for x in shown.split() if "@" in x).partition("@")[0]
        limit = ["root", "tbf", "rate", "80mbit", "burst", "32k", "latency", "400ms"]
        command = ["tc", "-n", name, "qdisc", "add", "dev", cable, *limit]
        if subprocess.run(command).returncode:
            pytest.skip("this kernel limits no bandwidth")
    workers = [hosts.start("worker"), hosts.start("chief")]
    (link,) = hosts.facts()["links"]
    assert link["workers"] == ["chief-0", "worker-0"]
    assert 4e6 < link["bytes_per_second"] < 10e6  # 80 Mbit/s
    assert [worker.wait(30) for worker in workers] == [0, 0], hosts.log("worker")
    checkpoints = hosts.folder / "root" / "late" / "Trainer" / "checkpoints"
    assert not list(checkpoints.rglob("*.index"))

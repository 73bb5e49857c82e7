from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer import watch
from strategos.components.trainer.cluster import ClusterSpec, Task
from strategos.components.trainer.launchers import joining, rendezvous
from strategos.components.trainer.member import Failure
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

# What `strategos worker` does, with a task that needs no TensorFlow.
WORKER = """
import sys
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import joining

folder, code, joining.local._MODULE = sys.argv[1:]
try:
    joining.join(folder, code, 20.0)
except UserError as error:
    sys.exit(f"ERROR {error}")
"""
HOST = """
import os, signal, time
from pathlib import Path
from strategos.components import events, worker_process
from strategos.components.errors import UserError
from strategos.components.trainer import preemption, watch
from strategos.components.trainer.cluster import ClusterSpec
from strategos.components.trainer.launchers import joining

marks = Path(os.environ["MARKS"])

def host(request):
    cluster = ClusterSpec.from_environment()
    seat = joining.Seat(cluster=cluster, **request["seat"])
    facts = joining.train(seat, cluster, work, watch.Limits(stall_timeout=2)) or {}
    EXPORT
    return facts

def work(cluster, reporter, attempt):
    reporter.step(1)
    name = cluster.task.name
    WORK

worker_process.serve(host)
"""


def _ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _ignore_interrupts():
    """As a shell has it for what it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclasses.dataclass
class Site:
    """A root that several hosts share, here processes."""

    folder: Path

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
            log_dir=str(self.folder / "log"),
            checkpoint_dir=str(self.trainer / "checkpoints" / "key"),
            batch_size=1,
            epochs=1,
            seed=1,
            distribution={"strategy": "multi_worker_mirrored"},
        )
        chief, worker = _ports(2)
        self.cluster = {
            "chief": [f"127.0.0.1:{chief}"],
            "worker": [f"127.0.0.1:{worker}"],
        }
        self.processes = []

    def code(self, name: str, text: str) -> Path:
        folder = self.folder / "code" / name
        folder.mkdir(exist_ok=True)
        (folder / "model.py").write_text(text)
        return folder

    def run(self, **operation):
        operation = {"launcher": "external", "start_timeout": 20.0, **operation}
        sink = str(self.folder / "events")
        given = (self.spec.to_json(), operation, sink)
        return self._start(RUN, *map(json.dumps, given))

    def worker(
        self, task: str, work="return {}", *, export="pass", code="run", cluster=None
    ):
        place = {"cluster": cluster or self.cluster, "task": {"type": task, "index": 0}}
        script = HOST
        for name, lines in {"WORK": work, "EXPORT": export}.items():
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
        """What the worker says of itself."""
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
        """Waits for what a task writes to `marks / name`."""
        path = self.marks / name
        return awaited(lambda: path.exists() and path.read_text())


def awaited(look, seconds=20.0):
    """Waits until `look` gives something, and returns that."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)
    return found


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def ended(process, seconds=20):
    """Exit code, and what it printed."""
    out, error = process.communicate(timeout=seconds)
    return process.returncode, out + error


def _is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


ANSWER = 'return {"from": name, "attempt": attempt} if name == "chief-0" else {}'
KILLED = """
if name == "worker-0":
    os.kill(os.getpid(), signal.SIGKILL)
"""
WORK_ON = """
(marks / f"pid-{name}-{attempt}").write_text(str(os.getpid()))
while True:
    reporter.step(1)
    time.sleep(0.05)
"""
EXPORT = """
if facts:
    (marks / "exporting").write_text(str(os.getpid()))
    while not (marks / "exported").exists():
        time.sleep(0.02)
"""
SAVING = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
(marks / f"ready-{name}").write_text("yes")
while not asked:
    time.sleep(0.02)
(marks / f"saved-{name}").write_text("yes")
raise preemption.Preempted
"""


def test_workers_train_when_all_are_there_and_the_run_gets_the_chiefs_facts(site):
    run = site.run()
    emit = 'events.emit("progress", message=f"step 1 of {name}")\n' + ANSWER
    chief = site.worker("chief", emit)
    site_of_chief = ended_later(chief)
    assert site_of_chief is None
    worker = site.worker("worker", emit)
    code, out = ended(run)
    assert code == 0, out
    expected = {"from": "chief-0", "attempt": 0, "restarts": 0}
    assert json.loads(out.splitlines()[0]) == expected
    assert [ended(worker)[0], ended(chief)[0]] == [0, 0]
    events = (site.folder / "events").read_text()
    assert "step 1 of chief-0" in events and "step 1 of worker-0" not in events
    assert "waiting for worker-0" in out


def ended_later(process, seconds=1.0):
    """Its exit code after a while, None if it still works."""
    time.sleep(seconds)
    return process.poll()


def test_a_killed_task_starts_all_again_at_their_addresses(site):
    run = site.run(max_restarts=1)
    once = f"if attempt == 1:\n    {ANSWER}\n{KILLED}{WORK_ON}"
    workers = [site.worker(task, once) for task in ("chief", "worker")]
    code, out = ended(run)
    assert code == 0 and '"restarts": 1' in out
    assert "worker-0 on" in out and "killed by SIGKILL: restarting the gang" in out
    assert [ended(worker)[0] for worker in workers] == [0, 0]


def test_restarts_used_up_end_the_run_and_all_workers(site):
    run = site.run(max_restarts=1)
    workers = [site.worker(task, KILLED + WORK_ON) for task in ("chief", "worker")]
    code, out = ended(run)
    assert code == 1
    assert "was killed by SIGKILL. The gang was restarted 1 times" in out
    for worker in workers:
        code, out = ended(worker)
        assert code == 1 and "was killed by SIGKILL" in out


def test_a_users_error_on_one_host_reaches_all(site):
    run = site.run()
    wrong = 'if name == "worker-0":\n    raise UserError("model.py:3: wrong")\n'
    workers = [site.worker(task, wrong + WORK_ON) for task in ("chief", "worker")]
    for process in (run, *workers):
        code, out = ended(process)
        assert code == 1 and "model.py:3: wrong" in out
    assert "worker-0 on" in out


def test_who_is_missing_is_named(site):
    run = site.run(start_timeout=3.0)
    chief = site.worker("chief")
    code, out = ended(run)
    assert code == 1
    assert "worker-0 did not join within 3 s" in out and "chief-0 on" in out
    assert "did not join" in ended(chief)[1]


def test_that_nobody_has_come_is_told(site):
    code, out = ended(site.run(start_timeout=0.5))
    assert code == 1 and "no worker joined within 0.5 s" in out
    assert "strategos worker PIPELINE_YAML" in out


def test_other_code_is_refused_by_the_name_of_the_task(site):
    site.code("other", "x = 2")
    run = site.run()
    worker = site.worker("worker", code="other")
    for process in (run, worker):
        code, out = ended(process)
        assert code == 1 and "worker-0" in out and "its code differs from" in out


def test_data_that_a_host_does_not_see_are_named(site):
    run = site.run()
    lonely = site.folder / "elsewhere" / "late" / "Trainer"
    lonely.mkdir(parents=True)
    lonely.joinpath("gang").symlink_to(site.trainer / "gang")
    site.trainer = lonely
    code, out = ended(site.worker("chief"))
    missing = site.folder / "elsewhere" / "late" / "data"
    assert code == 1 and f"{missing} is not there" in out
    assert ended(run)[0] == 1


def test_of_two_workers_with_one_task_the_first_is_told(site):
    run = site.run()
    first = site.worker("worker", ANSWER)
    awaited(lambda: site.state("worker") == "ready")
    second = site.worker("worker", ANSWER)
    code, out = ended(first)
    assert code == 1 and "has joined the run as worker-0 after this one" in out
    chief = site.worker("chief", ANSWER)
    assert [ended(process)[0] for process in (run, second, chief)] == [0, 0, 0]


def test_different_clusters_are_refused(site):
    run = site.run()
    other = {**site.cluster, "chief": ["127.0.0.1:1"]}
    site.worker("chief")
    site.worker("worker", cluster=other)
    code, out = ended(run)
    assert code == 1 and "worker-0 on" in out and "names another cluster" in out


def test_a_port_that_is_taken_is_named(site, monkeypatch):
    monkeypatch.setattr(joining, "_PORT_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster = {"chief": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]}
        place = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(place))
        with pytest.raises(UserError, match=f"chief-0 .* uses port {port}"):
            joining.join(str(site.trainer), "code", 1.0)


def test_a_port_that_the_system_refuses_is_not_said_to_be_taken(site, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refused)
    place = {"cluster": {"worker": ["a:80"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    told = "worker-0 .* allows no server on port 80: Permission denied"
    with pytest.raises(UserError, match=told):
        joining.join(str(site.trainer), "code", 1.0)


def test_a_worker_without_a_run_says_so(site, monkeypatch):
    place = {"cluster": site.cluster, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    with pytest.raises(UserError, match="no run has called for workers at .*gang"):
        joining.join(str(site.trainer), "code", 0.5)


@pytest.mark.parametrize(
    ("config", "told"),
    [(None, "TF_CONFIG is not set"), ("{chief", "TF_CONFIG is not JSON")],
)
def test_a_worker_without_a_place_says_so(site, monkeypatch, config, told):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match=told):
        joining.join(str(site.trainer), "code", 0.5)


def test_a_remote_root_is_refused():
    with pytest.raises(UserError, match="run.root, which is s3:// here"):
        rendezvous.folder_of("s3://bucket/root/late/Trainer/model/1")


@pytest.mark.parametrize(("seconds", "looks"), [(0.5, 13), (60.0, 7)])
def test_a_pause_of_who_looks_is_no_silence_of_the_others(seconds, looks):
    now = itertools.count(0, seconds)
    pulse = rendezvous.Pulse(lambda: next(now))
    assert not pulse.is_lost("1")
    assert [pulse.is_lost("1") for _ in range(looks)].index(True) == looks - 1
    assert not pulse.is_lost("2")


def test_workers_end_soon_after_a_killed_run(site):
    run = site.run()
    workers = [site.worker(task, WORK_ON) for task in ("chief", "worker")]
    pids = [int(site.mark(f"pid-{task}-0-0")) for task in ("chief", "worker")]
    run.kill()
    killed = time.monotonic()
    for worker in workers:
        code, out = ended(worker)
        assert code == 1 and "no sign of life" in out
    assert time.monotonic() - killed < 10
    assert not any(map(_is_alive, pids))


def test_an_interrupted_run_lets_the_tasks_save(site):
    run = site.run()
    workers = [site.worker(task, SAVING) for task in ("chief", "worker")]
    for task in ("chief", "worker"):
        site.mark(f"ready-{task}-0")
    run.send_signal(signal.SIGTERM)
    assert ended(run)[0] == -signal.SIGTERM
    for task, worker in zip(("chief", "worker"), workers, strict=True):
        assert site.mark(f"saved-{task}-0")
        code, out = ended(worker)
        assert code == 1 and "The run was interrupted" in out


@pytest.mark.parametrize("task", ["chief", "worker"])
def test_a_killed_worker_is_missed_and_may_come_back(site, task):
    run = site.run(max_restarts=1)
    work = f"if attempt == 1:\n    {ANSWER}\n" + WORK_ON
    workers = {name: site.worker(name, work) for name in ("chief", "worker")}
    pid = int(site.mark(f"pid-{task}-0-0"))
    workers[task].kill()
    workers[task].wait()
    workers[task] = site.worker(task, work)
    code, out = ended(run, 40)
    assert code == 0, out
    assert '"restarts": 1' in out
    assert f"{task}-0 on" in out and "restarting the gang (1 of 1)" in out
    assert [ended(worker)[0] for worker in workers.values()] == [0, 0]
    assert not _is_alive(pid)


def test_a_worker_that_leaves_while_the_chief_exports_costs_nothing(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    worker = site.worker("worker", ANSWER)
    site.mark("exporting")
    worker.terminate()
    assert ended(worker)[0] == -signal.SIGTERM
    late = site.worker("worker", ANSWER)
    awaited(lambda: site.state("worker") == "arrived")
    time.sleep(4 * rendezvous.BEAT_SECONDS)  # the run has seen both
    (site.marks / "exported").write_text("yes")
    code, out = ended(run)
    assert code == 0 and '"restarts": 0' in out, out
    assert [ended(chief)[0], ended(late)[0]] == [0, 0]


def test_a_chief_that_is_done_after_all_ends_the_wait_for_others(site):
    """It had trained before it could hear that another had failed."""
    run = site.run()
    gang = rendezvous.Board(site.trainer / "gang")
    call = awaited(lambda: gang.get(rendezvous.CALL))
    board = rendezvous.Board(gang.folder / call["id"])

    def say(task, state, **more):
        about = {"generation": 0, "session": task, "host": "h", "cluster": site.cluster}
        board.put(f"{task}-0", {"task": f"{task}-0", "state": state, **about, **more})
        (board.folder / f"{task}-0.beat").write_text(state)

    say("chief", "ready")
    say("worker", "ready")
    awaited(lambda: board.get(rendezvous.RUN).get("go"))
    lost = dataclasses.asdict(Failure("worker-0", "failed"))
    say("worker", "failed", failure={**lost, "stepped": True})
    awaited(lambda: board.get(rendezvous.RUN).get("generation"))
    say("chief", "done", facts={"from": "chief-0"})
    code, out = ended(run)
    assert code == 0 and json.loads(out.splitlines()[0]) == {"from": "chief-0"}


def test_a_worker_whose_host_does_not_look_ends_with_a_killed_run(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    site.worker("worker", ANSWER)
    pid = int(site.mark("exporting"))
    run.kill()
    code, out = ended(chief)
    assert code == 1 and "no sign of life" in out
    assert not _is_alive(pid)


def test_an_interrupted_run_is_no_reason_to_finish_an_export(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    site.worker("worker", ANSWER)
    pid = int(site.mark("exporting"))
    run.terminate()
    assert ended(run)[0] == -signal.SIGTERM
    code, out = ended(chief)
    assert code == 1 and "The run was interrupted" in out
    assert not _is_alive(pid)


def test_what_a_server_holds_is_there_until_the_chief_has_saved(site):
    (port,) = _ports(1)
    run, cluster = site.run(), {**site.cluster, "ps": [f"127.0.0.1:{port}"]}
    slowly = '(marks / "asked").write_text("yes")\ntime.sleep(2)\n'
    saves = SAVING.replace('(marks / f"saved', slowly + '(marks / f"saved')
    serves = WORK_ON + '    (marks / f"alive-{name}").write_text("yes")\n'
    servers = [site.worker(task, serves, cluster=cluster) for task in ("ps", "worker")]
    chief = site.worker("chief", saves, cluster=cluster)
    for mark in ("ready-chief-0", "alive-ps-0", "alive-worker-0"):
        site.mark(mark)
    run.terminate()
    assert ended(run)[0] == -signal.SIGTERM
    assert site.mark("saved-chief-0")
    asked = (site.marks / "asked").stat().st_mtime
    for name in ("ps-0", "worker-0"):
        assert (site.marks / f"alive-{name}").stat().st_mtime > asked + 1
    for worker in (chief, *servers):
        code, out = ended(worker)
        assert code == 1 and "The run was interrupted" in out


def test_where_one_host_hangs_the_stacks_of_all_are_told(site):
    run = site.run(max_restarts=1)
    hang = """
def hang_here():
    time.sleep(60)

if name == "chief-0":
    hang_here()
"""
    work = f"if attempt == 1:\n    {ANSWER}\n{hang}{WORK_ON}"
    workers = [site.worker(task, work) for task in ("chief", "worker")]
    code, out = ended(run, 40)
    assert code == 0, out
    assert "chief-0 on" in out and "did no step for 2 s" in out
    for worker, frame in zip(workers, ("hang_here", "in work"), strict=True):
        code, out = ended(worker)
        assert code == 0 and "Current thread" in out and frame in out


def test_a_wish_to_end_in_the_last_moment_of_training_is_no_export(tmp_path):
    cluster = ClusterSpec({"chief": ("127.0.0.1:1",)}, Task("chief"))

    class Seat(joining.Seat):
        def outside(self, done):
            over = super().outside(done)
            if over:
                signal.raise_signal(signal.SIGTERM)
            return over

    board = rendezvous.Board(tmp_path)
    board.put(rendezvous.RUN, {"go": False})
    seat = Seat(tmp_path, cluster, "session")
    seat.say("ready")
    board.put(rendezvous.RUN, {"go": True})
    with pytest.raises(SystemExit):
        joining.train(seat, cluster, lambda *_: {}, watch.Limits())
    assert board.get("chief-0")["state"] == "left"

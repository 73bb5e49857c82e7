"""Training with workers started elsewhere: losses, hangs, interrupts, the export."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import time

import psutil
import pytest

from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts import worker as host_worker

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


def _is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_train_when_all_have_joined_and_the_run_gets_the_chiefs_facts(site):
    run = site.run()
    emit = (
        'events.emit("progress", message=f"step 1 of {name}")\n'
        'events.emit("used", file=f"/{name}.txt")\n' + ANSWER
    )
    chief = site.worker("chief", emit)
    site.awaited(lambda: site.state("chief") == "ready")
    time.sleep(1.0)
    assert chief.poll() is None
    worker = site.worker("worker", emit)
    code, out = site.ended(run)
    assert code == 0, out
    expected = {"from": "chief-0", "attempt": 0, "restarts": 0}
    assert json.loads(out.splitlines()[0]) == expected
    assert [site.ended(worker)[0], site.ended(chief)[0]] == [0, 0]
    events = (site.folder / "events").read_text()
    assert "step 1 of chief-0" in events and "step 1 of worker-0" not in events
    assert "/chief-0.txt" in events and "/worker-0.txt" in events
    assert "waiting for worker-0" in out


@pytest.mark.long
def test_a_killed_task_starts_all_again_at_their_addresses(site):
    run = site.run(max_restarts=1)
    once = f"if attempt == 1:\n    {ANSWER}\n{KILLED}{WORK_ON}"
    workers = [site.worker(task, once) for task in ("chief", "worker")]
    code, out = site.ended(run)
    assert code == 0 and '"restarts": 1' in out
    assert "worker-0 on" in out and "killed by SIGKILL: restarting the gang" in out
    assert [site.ended(worker)[0] for worker in workers] == [0, 0]


@pytest.mark.long
def test_a_host_that_is_killed_before_the_attempt_begins_starts_again(site):
    run = site.run(max_restarts=1)
    kill = """
if not (marks / "killed").exists():
    (marks / "killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    workers = [site.worker("chief", ANSWER), site.worker("worker", before=kill)]
    code, out = site.ended(run)
    assert code == 0 and '"restarts": 1' in out
    assert "worker-0 on" in out and "lost the host of its task: restarting" in out
    assert [site.ended(worker)[0] for worker in workers] == [0, 0]


@pytest.mark.long
def test_a_host_that_is_always_killed_early_uses_the_restarts_up(site):
    run = site.run(max_restarts=2)
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    workers = [site.worker("chief", ANSWER), site.worker("worker", before=kill)]
    code, out = site.ended(run)
    assert code == 1
    assert (
        "lost the host of its task. The gang was restarted 2 times without progress"
        in out
    )
    assert [site.ended(worker)[0] for worker in workers] == [1, 1]


@pytest.mark.long
def test_restarts_used_up_end_the_run_and_all_workers(site):
    run = site.run(max_restarts=1)
    workers = [site.worker(task, KILLED + WORK_ON) for task in ("chief", "worker")]
    code, out = site.ended(run)
    assert code == 1
    assert (
        "was killed by SIGKILL. The gang was restarted 1 time without progress" in out
    )
    for worker in workers:
        code, out = site.ended(worker)
        assert code == 1 and "was killed by SIGKILL" in out


def test_a_users_error_on_one_host_reaches_all(site):
    run = site.run()
    wrong = 'if name == "worker-0":\n    raise UserError("model.py:3: wrong")\n'
    workers = [site.worker(task, wrong + WORK_ON) for task in ("chief", "worker")]
    for process in (run, *workers):
        code, out = site.ended(process)
        assert code == 1 and "model.py:3: wrong" in out
    assert "worker-0 on" in out


@pytest.mark.parametrize(("seconds", "looks"), [(0.5, 13), (60.0, 7)])
def test_a_paused_monitor_does_not_declare_others_lost(seconds, looks):
    now = itertools.count(0, seconds)
    monitor = rendezvous.HeartbeatMonitor(lambda: next(now))
    assert not monitor.is_lost("1")
    assert [monitor.is_lost("1") for _ in range(looks)].index(True) == looks - 1
    assert not monitor.is_lost("2")


@pytest.mark.long
def test_workers_end_soon_after_a_killed_run(site):
    run = site.run()
    workers = [site.worker(task, WORK_ON) for task in ("chief", "worker")]
    pids = [int(site.mark(f"pid-{task}-0-0")) for task in ("chief", "worker")]
    run.kill()
    killed = time.monotonic()
    for worker in workers:
        code, out = site.ended(worker)
        assert code == 1 and "no heartbeat" in out
    assert time.monotonic() - killed < 60  # they would work forever
    assert not any(map(_is_alive, pids))


def test_an_interrupted_run_lets_the_tasks_save(site):
    run = site.run()
    workers = [site.worker(task, SAVING) for task in ("chief", "worker")]
    for task in ("chief", "worker"):
        site.mark(f"ready-{task}-0")
    run.send_signal(signal.SIGTERM)
    assert site.ended(run)[0] == -signal.SIGTERM
    for task, worker in zip(("chief", "worker"), workers, strict=True):
        assert site.mark(f"saved-{task}-0")
        code, out = site.ended(worker)
        assert code == 1 and "The run was interrupted" in out


@pytest.mark.long
@pytest.mark.parametrize("task", ["chief", "worker"])
def test_a_killed_worker_is_noticed_and_may_join_again(site, task):
    run = site.run(max_restarts=1)
    work = f"if attempt == 1:\n    {ANSWER}\n" + WORK_ON
    workers = {name: site.worker(name, work) for name in ("chief", "worker")}
    pid = int(site.mark(f"pid-{task}-0-0"))
    workers[task].kill()
    workers[task].wait()
    workers[task] = site.worker(task, work)
    code, out = site.ended(run, 40)
    assert code == 0, out
    assert '"restarts": 1' in out
    assert f"{task}-0 on" in out and "restarting the gang (1 of 1)" in out
    assert [site.ended(worker)[0] for worker in workers.values()] == [0, 0]
    assert not _is_alive(pid)


@pytest.mark.long
def test_a_worker_that_leaves_while_the_chief_exports_costs_nothing(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    worker = site.worker("worker", ANSWER)
    site.mark("exporting")
    worker.terminate()
    assert site.ended(worker)[0] == -signal.SIGTERM
    late = site.worker("worker", ANSWER)
    site.awaited(lambda: site.state("worker") == "arrived")
    time.sleep(4 * rendezvous.HEARTBEAT_SECONDS)  # the run has seen both
    (site.marks / "exported").write_text("yes")
    code, out = site.ended(run)
    assert code == 0 and '"restarts": 0' in out, out
    assert [site.ended(chief)[0], site.ended(late)[0]] == [0, 0]


@pytest.mark.long
def test_a_chief_that_is_done_ends_the_wait_for_others(site):
    """The chief had finished before it could read that another task had failed."""
    run = site.run()
    gang = rendezvous.Rendezvous(site.trainer / "gang")
    call = site.awaited(lambda: gang.get(rendezvous.CALL))
    shared = rendezvous.Rendezvous(gang.folder / call["id"])

    def report(task, state, **more):
        about = {"generation": 0, "session": task, "host": "h", "cluster": site.cluster}
        shared.put(f"{task}-0", {"task": f"{task}-0", "state": state, **about, **more})
        (shared.folder / f"{task}-0.beat").write_text(state)

    report("chief", "ready")
    report("worker", "ready")
    site.awaited(lambda: shared.get(rendezvous.RUN).get("go"))
    lost = dataclasses.asdict(Failure("worker-0", "failed"))
    report("worker", "failed", failure={**lost, "stepped": True})
    site.awaited(lambda: shared.get(rendezvous.RUN).get("generation"))
    report("chief", "done", facts={"from": "chief-0"})
    code, out = site.ended(run)
    assert code == 0 and json.loads(out.splitlines()[0]) == {"from": "chief-0"}


@pytest.mark.long
def test_a_worker_that_is_exporting_ends_with_a_killed_run(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    site.worker("worker", ANSWER)
    pid = int(site.mark("exporting"))
    run.kill()
    code, out = site.ended(chief)
    assert code == 1 and "no heartbeat" in out
    assert not _is_alive(pid)


@pytest.mark.long
def test_an_interrupted_run_ends_an_export(site):
    run = site.run()
    chief = site.worker("chief", ANSWER, export=EXPORT)
    site.worker("worker", ANSWER)
    pid = int(site.mark("exporting"))
    run.terminate()
    assert site.ended(run)[0] == -signal.SIGTERM
    code, out = site.ended(chief)
    assert code == 1 and "The run was interrupted" in out
    assert not _is_alive(pid)


@pytest.mark.long
def test_servers_live_until_the_chief_has_saved(site, free_ports):
    (port,) = free_ports(1)
    run, cluster = site.run(), {**site.cluster, "ps": [f"127.0.0.1:{port}"]}
    slowly = '(marks / "asked").write_text("yes")\ntime.sleep(2)\n'
    saves = SAVING.replace('(marks / f"saved', slowly + '(marks / f"saved')
    serves = WORK_ON + '    (marks / f"alive-{name}").write_text("yes")\n'
    servers = [site.worker(task, serves, cluster=cluster) for task in ("ps", "worker")]
    chief = site.worker("chief", saves, cluster=cluster)
    for mark in ("ready-chief-0", "alive-ps-0", "alive-worker-0"):
        site.mark(mark)
    run.terminate()
    assert site.ended(run)[0] == -signal.SIGTERM
    assert site.mark("saved-chief-0")
    asked = (site.marks / "asked").stat().st_mtime
    for name in ("ps-0", "worker-0"):
        assert (site.marks / f"alive-{name}").stat().st_mtime > asked + 1
    for worker in (chief, *servers):
        code, out = site.ended(worker)
        assert code == 1 and "The run was interrupted" in out


@pytest.mark.long
def test_when_one_host_hangs_all_hosts_dump_their_stacks(site):
    run = site.run(max_restarts=1)
    hang = """
def hang_here():
    time.sleep(60)

if name == "chief-0":
    hang_here()
"""
    work = f"if attempt == 1:\n    {ANSWER}\n{hang}{WORK_ON}"
    workers = [site.worker(task, work, stall=2) for task in ("chief", "worker")]
    code, out = site.ended(run, 40)
    assert code == 0, out
    assert "chief-0 on" in out and "did no step for 2 s" in out
    for worker, frame in zip(workers, ("hang_here", "in work"), strict=True):
        code, out = site.ended(worker)
        assert code == 0 and "Current thread" in out and frame in out


def test_sigterm_at_the_end_of_training_prevents_the_export(tmp_path):
    cluster = ClusterSpec({"chief": ("127.0.0.1:1",)}, Task("chief"))

    class Membership(host_worker.Membership):
        def outside(self, done):
            over = super().outside(done)
            if over:
                signal.raise_signal(signal.SIGTERM)
            return over

    shared = rendezvous.Rendezvous(tmp_path)
    shared.put(rendezvous.RUN, {"go": False})
    membership = Membership(tmp_path, cluster, "session")
    membership.report("ready")
    shared.put(rendezvous.RUN, {"go": True})
    with pytest.raises(SystemExit):
        host_worker.train(membership, cluster, lambda *_: {}, watchdog.Limits())
    assert shared.get("chief-0")["state"] == "left"

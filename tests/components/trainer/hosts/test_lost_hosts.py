"""Runs with `min_workers` whose hosts are lost, and come back."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long

ELASTIC = {"max_restarts": 2, "min_workers": 1}
# Alone or after a restart the task ends, else it works on; it says who takes part.
ALONE = """
(marks / f"pid-{name}-{attempt}").write_text(str(os.getpid()))
if attempt and cluster.lost:
    return {"from": name, "lost": cluster.lost, "reason": "asked for"}
while True:
    reporter.step(1)
    time.sleep(0.05)
"""
# Alone it saves a checkpoint, and goes on until it is ended for those who return.
SAVES = """
(marks / f"pid-{name}-{attempt}").write_text(str(os.getpid()))
if attempt and not cluster.lost:
    return {"attempt": attempt, "reason": "asked for"} if name == "chief-0" else {}
saved = marks.parent / "root/late/Trainer/checkpoints/key/step-0000000007"
while True:
    reporter.step(1)
    if cluster.lost and (marks / "back").exists() and not saved.exists():
        saved.mkdir(parents=True)
        (saved / "state.json").touch()
    time.sleep(0.05)
"""
FAILS = """
if name == "worker-0":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.faults
@pytest.mark.parametrize("gone", ["chief", "worker"])
def test_the_others_go_on_without_a_host_that_stays_away(site, gone):
    run = site.run(**ELASTIC)
    workers = {task: site.worker(task, ALONE) for task in ("chief", "worker")}
    for task in workers:
        site.mark(f"pid-{task}-0-0")
    workers[gone].kill()
    code, out = site.ended(run, 40)
    assert code == 0, out
    facts = json.loads(out.splitlines()[0])
    assert (facts["from"], facts["restarts"]) == ("chief-0", 1)
    assert facts["lost"] == [["chief", "worker"].index(gone)]
    assert facts["reason"] == "asked for; trained by 2 and 1 workers in turn"
    assert f"{gone}-0 is lost (away for 3 s): 1 of 2 workers go on from the" in out
    (left,) = {"chief", "worker"} - {gone}
    assert site.ended(workers[left])[0] == 0


def test_a_host_that_comes_back_takes_part_from_the_next_checkpoint_on(site):
    run = site.run(**ELASTIC)
    workers = {task: site.worker(task, SAVES) for task in ("chief", "worker")}
    site.mark("pid-worker-0-0")
    workers["worker"].kill()
    site.mark("pid-chief-0-1")
    workers["worker"] = site.worker("worker", SAVES)
    waits = "waiting for a checkpoint to take in worker-0"
    site.awaited(lambda: waits in (site.folder / "events").read_text())
    (site.marks / "back").write_text("yes")
    code, out = site.ended(run, 40)
    assert code == 0, out
    facts = json.loads(out.splitlines()[0])
    assert (facts["attempt"], facts["restarts"]) == (2, 2)
    assert "worker-0 returns: 2 of 2 workers go on from step 7" in out
    assert [site.ended(each)[0] for each in workers.values()] == [0, 0]


@pytest.mark.faults
def test_a_task_that_fails_on_its_host_again_and_again_is_left_out(site):
    run = site.run(max_restarts=1, min_workers=1)
    workers = [site.worker(task, FAILS + ALONE) for task in ("chief", "worker")]
    code, out = site.ended(run, 40)
    assert code == 0, out
    assert "worker-0 is lost (worker-0 on" in out
    assert "was killed by SIGKILL, again without progress): 1 of 2 workers go on" in out
    assert [site.ended(worker)[0] for worker in workers] == [0, 0]


@pytest.mark.faults
def test_fewer_hosts_than_min_workers_end_the_run(site):
    run = site.run(max_restarts=1, min_workers=2, start_timeout=10.0)
    workers = {task: site.worker(task, ALONE) for task in ("chief", "worker")}
    for task in workers:
        site.mark(f"pid-{task}-0-0")
    workers["worker"].kill()
    code, out = site.ended(run, 40)
    assert code == 1
    assert "worker-0 did not join within 10 s" in out

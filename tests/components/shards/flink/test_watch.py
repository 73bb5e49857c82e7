"""Jobs on a real cluster that hang, are interrupted, or end unnoticed."""

from __future__ import annotations

import dataclasses
import operator
import os
import signal
import threading
import time
import zipfile
from concurrent import futures
from pathlib import Path

import apache_beam as beam
import pytest

from strategos.components.errors import UserError
from strategos.components.shards.beam_runners import make_pipeline
from strategos.components.shards.engine import Engine
from strategos.components.shards.flink.master import Master, MasterError
from strategos.components.shards.fold import fold

pytestmark = pytest.mark.engine

DRIVER = """
import operator, sys, time
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold

engine = Engine.from_environment()
print(fold(engine, range(100), operator.neg, operator.add, sys.argv[1]), flush=True)
fold(engine, [3600.0] * 4, time.sleep, operator.or_, sys.argv[1])
"""

HOURS = [3600.0] * 4


@pytest.fixture
def engine(cluster):
    return Engine("portable", 2, cluster.job_endpoint, master=cluster.master)


@pytest.fixture
def hang(engine, tmp_path):
    """Runs a job that sleeps for hours."""

    def run(engine=engine, **limits):
        changed = dataclasses.replace(engine, **limits)
        fold(changed, HOURS, time.sleep, operator.or_, str(tmp_path))

    return run


def jobs(engine):
    found = answered(lambda: Master(engine.master).get("/jobs/overview"))
    return {job["jid"]: job["state"] for job in found["jobs"]}


def answered(ask, seconds=120):
    """What a master answers that may be too busy to answer at once."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except MasterError:
            if time.monotonic() > until:
                raise


def new_job(engine, before):
    """The state of the job that came since, once it has ended."""
    until = time.monotonic() + 60
    while True:
        ((_, state),) = (item for item in jobs(engine).items() if item[0] not in before)
        if state != "CANCELLING" or time.monotonic() > until:
            return state
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"timeout": 20.0}, "has not ended after 2"),
        ({"stall_timeout": 25.0}, "has made no progress for 2"),
    ],
)
def test_job_that_exceeds_a_limit_is_cancelled(engine, hang, limits, message):
    before = jobs(engine)
    with pytest.raises(UserError, match=message) as caught:
        hang(**limits)
    (name,) = limits
    assert caught.value.key == f"run.engine.options.{name}"
    assert new_job(engine, before) == "CANCELED"


def test_job_is_cancelled_if_its_driver_is_interrupted(engine, hang):
    before = jobs(engine)

    def interrupt():
        until = time.monotonic() + 120
        while len(jobs(engine)) == len(before) and time.monotonic() < until:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        hang()
    assert new_job(engine, before) == "CANCELED"


def test_job_whose_end_the_job_server_never_reports_ends(engine):
    """Beam 2.62's job server fails to handle a job without a single metric."""
    with make_pipeline(engine) as pipeline:
        _ = pipeline | beam.Impulse()


def test_two_jobs_share_a_cluster(engine, tmp_path):
    one = dataclasses.replace(engine, workers=1)
    with futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda part: fold(one, part, operator.neg, operator.add, str(tmp_path)),
            [range(0, 60), range(60, 100)],
        )
        assert list(found) == [-1770, -3180]


def carried(master):
    """The files in the jars that the jobs of a cluster have brought."""
    settings = answered(lambda: master.get("/jobmanager/config"))
    (folder,) = (e["value"] for e in settings if e["key"] == "blob.storage.directory")
    found = set()
    for file in filter(zipfile.is_zipfile, Path(folder).rglob("blob_*")):
        with zipfile.ZipFile(file) as jar:
            found.update(jar.namelist())
    return found


def test_jobs_bring_no_jar_of_flink_and_none_of_a_killed_driver_stays(
    engine, warm_tfx, tmp_path
):
    """By the process that holds the job server, which the cluster did not start."""
    master, before = Master(engine.master), jobs(engine)
    variable = Engine("flink", 2, master=engine.master).to_environment()
    driver = warm_tfx.script(DRIVER, str(tmp_path), TMPDIR=str(tmp_path), **variable)
    assert driver.stdout.readline() == b"-4950\n"
    until = time.monotonic() + 120
    while "RUNNING" not in jobs(engine).values() and time.monotonic() < until:
        time.sleep(0.2)
    classes = carried(master)
    assert "org/apache/beam/runners/flink/FlinkPipelineRunner.class" in classes
    assert not any(name.startswith("org/apache/flink/") for name in classes)
    os.kill(driver.pid, signal.SIGKILL)
    until = time.monotonic() + 120
    while "RUNNING" in jobs(engine).values() and time.monotonic() < until:
        time.sleep(0.2)
    states = [state for job, state in jobs(engine).items() if job not in before]
    assert sorted(states) in (["CANCELED", "FINISHED"], ["CANCELLING", "FINISHED"])
    overview = answered(lambda: master.get("/overview"))
    assert overview["taskmanagers"] == 2
    (logs,) = tmp_path.glob("flink-*")
    assert sorted(os.listdir(logs)) == ["host.log", "job-server.log"]

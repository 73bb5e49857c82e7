"""Holders of a lease that are killed, frozen, and cut off from the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from strategos.pipeline.root import lease, lock, metadata

pytestmark = pytest.mark.faults

HOLDER = """
import sys, time
from strategos.pipeline.root import lease, metadata

lease._BEAT_SECONDS = 0.2
url, password, pipeline = sys.argv[1:]
connection = metadata.connection("/runs", url, password)
after = lease.last(connection, pipeline)
with lease.hold(connection, pipeline, after, "theirs") as held:
    print("held", flush=True)
    while not held.lost and sys.stdin.readable():
        time.sleep(0.05)
    print(held.lost, flush=True)
"""


@pytest.fixture
def start(metadata_password):
    """Starts another process that takes the lease of a pipeline and holds it."""
    started = []

    def start(connection, pipeline):
        kind = connection.WhichOneof("config")
        server = getattr(connection, kind)
        database = getattr(server, "database", "") or getattr(server, "dbname", "")
        url = f"{kind}://{server.user}@{server.host}:{server.port}/{database}"
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, metadata_password, pipeline],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(holder)
        assert holder.stdout.readline() == "held\n"
        return holder

    yield start
    for holder in started:
        holder.kill()
        holder.communicate()


@pytest.fixture
def soon(monkeypatch):
    """A holder that is not heard of is given up after a second."""
    monkeypatch.setattr(lease, "_EXPIRY_SECONDS", 1.0)


def test_a_lease_that_is_renewed_is_held(connection, start):
    start(connection, "renewed")
    with pytest.raises(lock.HeldError, match="run theirs has been running since"):
        lease.last(connection, "renewed")


def test_the_lease_of_a_killed_holder_expires(connection, start, soon):
    holder = start(connection, "killed")
    holder.kill()
    assert lease.last(connection, "killed") == 1


def test_a_holder_that_was_frozen_notices_that_it_lost_the_lease(
    connection, start, soon
):
    holder = start(connection, "frozen")
    holder.send_signal(signal.SIGSTOP)
    after = lease.last(connection, "frozen")
    with lease.hold(connection, "frozen", after, "ours"):
        holder.send_signal(signal.SIGCONT)
        lost, _ = holder.communicate(timeout=200)
        assert "run ours on " in lost and "has taken over" in lost
        store = metadata.initialise(connection)
        lease.reject_lost(store, "frozen", "ours")
        with pytest.raises(lease.LostError, match="run ours on .* has taken over"):
            lease.reject_lost(store, "frozen", "theirs")


def test_a_lease_outlives_a_restart_of_the_server(
    mariadb_server, metadata_password, start
):
    connection = metadata.connection("/runs", mariadb_server.address, metadata_password)
    holder = start(connection, "restarted")
    mariadb_server.down()
    mariadb_server.listen()
    with pytest.raises(lock.HeldError, match="run theirs"):
        lease.last(connection, "restarted")
    holder.kill()


def test_a_frozen_run_that_comes_back_does_not_push(small, mariadb, metadata_password):
    """The roots stand for two machines: each has a lock of its own."""
    here = ("--set", f"run.metadata={mariadb}")
    there = (*here, "--set", f"run.root={small.folder}/there")
    with small.held("Trainer"):
        run = small.start(*here, "--set", "trainer.epochs=2", node="Trainer")
        words = ("retrain", str(small.yaml), *there)
        waits = small.strategos(*words, "--if-due").stdout
        assert waits.startswith("Not due: pipeline small: run 2")
        everything = [pid for pid, *_ in small._processes()]
        for pid in everything:
            os.kill(pid, signal.SIGSTOP)
    took_over = small.strategos(*words)
    assert "has not renewed its lease" in took_over.stderr
    (version,) = small.serving()
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 1
    assert "has taken over" in said
    assert small.serving() == [version]
    small.wait_until_nothing_is_left(60)

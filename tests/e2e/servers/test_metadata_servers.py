"""ML Metadata on real database servers."""

from __future__ import annotations

import json
import os
import time
from concurrent import futures

import pytest

from strategos.pipeline.root import lease, lock, metadata

# Steps enough for the server to be gone while each of them is held up.
_LONG = ("--set", "trainer.epochs=40")


@pytest.mark.parametrize(
    "server", ["mariadb", pytest.param("postgresql", marks=pytest.mark.long)]
)
def test_run_is_recorded_and_cached_on_a_server(
    server, request, make_small, tmp_path, metadata_password, monkeypatch
):
    url = request.getfixturevalue(server)
    workspace = make_small(tmp_path)
    arguments = ("--set", f"run.metadata={url}")
    for _ in range(2):
        workspace.run(*arguments, "--to", "ExampleGen")
    overlay = workspace.folder / "pipeline.yaml"
    overlay.write_text(overlay.read_text() + f"run: {{metadata: '{url}'}}\n")
    listed = workspace.strategos("runs", str(workspace.yaml), "--json").stdout
    assert len(json.loads(listed)) == 2
    assert workspace.states() == {"ExampleGen": "cached"}
    shown = workspace.strategos("config", str(workspace.yaml), *arguments).stdout
    assert metadata_password not in shown
    kept = [path for path in (workspace.folder / "runs").rglob("*") if path.is_file()]
    assert not any(metadata_password.encode() in path.read_bytes() for path in kept)
    monkeypatch.setenv("STRATEGOS_METADATA_PASSWORD", "wrong")
    refused = workspace.run(*arguments, expect=2)
    assert "STRATEGOS_METADATA_PASSWORD" in refused.stderr


@pytest.mark.faults
@pytest.mark.parametrize(
    ("runner", "seed"),
    [("local", 1), ("beam", 2)],
)
def test_run_waits_for_a_server_that_was_restarted(
    mariadb_server, small, metadata_password, runner, seed
):
    arguments = ("--to", "Trainer", "--runner", runner, "--set", f"trainer.seed={seed}")
    arguments += (*_LONG, "--set", f"run.metadata={mariadb_server.address}")
    run = _start_training(small, *arguments, until=mariadb_server.down)
    small.wait_for_event("does not answer")
    mariadb_server.listen()
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    assert "ML Metadata answers again after" in said
    assert "bug in Strategos" not in said and "mysql_real_connect" not in said


@pytest.mark.faults
def test_model_of_a_run_that_waited_in_vain_is_taken_by_the_next(
    mariadb_server, small, metadata_password
):
    arguments = ("--to", "Trainer", *_LONG, "--set", "trainer.seed=3")
    arguments += ("--set", f"run.metadata={mariadb_server.address}")
    wait = ("--set", "run.metadata_timeout=5s")
    run = _start_training(small, *arguments, *wait, until=mariadb_server.down)
    said, _ = run.communicate(timeout=500)
    assert run.returncode == 1, said
    assert "waiting up to 5 s" in said
    assert f"at 127.0.0.1:{mariadb_server.port} as strategos cannot be used" in said
    assert "Check that the server runs" in said and "bug in Strategos" not in said
    mariadb_server.listen()
    done = small.run(*arguments)
    assert "taking the model that an interrupted run had finished" in done.stderr


def _start_training(workspace, *arguments, until):
    """Starts a run whose training ends only after `until` was called."""
    with workspace.held("Trainer"):
        run = workspace.start(*arguments, node="Trainer")
        workspace.wait_for_event("epoch 1/")
        until()
    return run


def test_server_that_is_away_at_the_start_is_named_at_once(
    make_small, tmp_path, metadata_password, free_ports
):
    (port,) = free_ports(1)
    url = f"mysql://strategos@127.0.0.1:{port}/mlmd"
    began = time.monotonic()
    refused = make_small(tmp_path).run("--set", f"run.metadata={url}", expect=2)
    assert f"at 127.0.0.1:{port}" in refused.stderr
    assert "Connection refused" in refused.stderr
    assert time.monotonic() - began < 60


def test_one_of_several_gets_the_lease_and_names_itself_to_the_others(connection):
    after = lease.last(connection, "crowd")
    taken, refused = [], []

    def take(name):
        try:
            taken.append(lease.Lease(connection, "crowd", after + 1, name))
        except lock.HeldError as error:
            refused.append(str(error))

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(take, (f"run-{number}" for number in range(8))))
    (held,) = taken
    assert len(refused) == 7
    store = metadata.initialise(connection)
    (who,) = lease.holders(store).values()
    assert all(f"crowd: run {who['run_id']} has been running" in e for e in refused)
    assert who["pid"] == os.getpid()
    assert lease.last(connection, "another") == 0
    held.release()
    assert lease.holders(store) == {}
    assert lease.last(connection, "crowd") == after + 1


def test_a_decision_that_another_run_has_overtaken_is_not_followed(connection):
    after = lease.last(connection, "overtaken")
    with lease.hold(connection, "overtaken", after, "faster"):
        pass
    with (
        pytest.raises(lock.HeldError, match="run faster has been running"),
        lease.hold(connection, "overtaken", after, "slower"),
    ):
        pass

"""Waiting for a server, and closing the records of runs that died."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import events
from strategos.components.errors import BadInputError, UserError
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import identity, metadata
from strategos.pipeline.run import journal


@pytest.fixture
def server():
    """A connection to a port on which no server listens, and the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        yield metadata.connection("/r", f"mysql://me@127.0.0.1:{port}/db"), probe


class Clock:
    """A clock that advances only by its own `sleep`."""

    def __init__(self):
        self.now, self.pauses, self.at = 0.0, [], {}

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        for when in [when for when in self.at if when <= self.now]:
            self.at.pop(when)()


def test_a_server_that_comes_back_is_waited_for_and_that_is_reported(server, tmp_path):
    connection, port = server
    clock = Clock()
    clock.at[20.0] = port.listen
    events.open_sink(str(tmp_path / "events"))
    found = metadata.patiently(lambda: "store", connection, 60, clock, clock.sleep)
    events.open_sink(None)
    assert found == "store"
    assert clock.pauses == [1, 2, 4, 8, 8]
    first, last = map(json.loads, (tmp_path / "events").read_text().splitlines())
    waiting = "does not answer (Connection refused): waiting up to 60 s"
    assert first["event"] == "warning" and waiting in first["message"]
    assert last["message"] == "ML Metadata answers again after 23 s"


def test_a_server_that_stays_away_is_an_error_with_a_remedy(server):
    connection, _ = server
    clock = Clock()
    with pytest.raises(
        UserError, match="cannot be used .Connection refused.*\n *Check"
    ):
        metadata.patiently(lambda: "store", connection, 60, clock, clock.sleep)
    assert clock.now == 60


def test_an_sqlite_file_that_is_broken_is_not_waited_for(tmp_path):
    (tmp_path / "metadata.sqlite").write_text("no database" * 1000)
    clock, config = Clock(), metadata.connection(tmp_path)
    with pytest.raises(UserError, match=f"move all of {tmp_path} away"):
        metadata.patiently(
            lambda: ml_metadata.MetadataStore(config), config, 60, clock, clock.sleep
        )
    assert not clock.pauses


def test_database_of_a_newer_ml_metadata_is_named(tmp_path):
    config = metadata.connection(tmp_path)
    metadata.initialise(config)
    with contextlib.closing(sqlite3.connect(tmp_path / "metadata.sqlite")) as database:
        database.execute("UPDATE MLMDEnv SET schema_version = 99")
        database.commit()
    for connect in (metadata.initialise, Store):
        with pytest.raises(BadInputError, match="newer ML Metadata .schema 99; .* 10"):
            connect(config)


@pytest.mark.parametrize("newer", [False, True])
def test_the_history_of_a_newer_strategos_is_named_and_left_as_it_is(
    tmp_path, monkeypatch, newer
):
    connection = metadata.connection(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "FORMAT", identity.FORMAT + newer)
        identity.of(metadata.initialise(connection))
    before = metadata.sqlite_file(tmp_path).read_bytes()
    for opened in (metadata.initialise, Store):
        if not newer:
            opened(connection)
            continue
        with pytest.raises(BadInputError) as raised:
            opened(connection)
        assert f"{metadata.sqlite_file(tmp_path)} was written by" in str(raised.value)
        assert "(format 2; the one installed here reads 1)" in str(raised.value)
    assert metadata.sqlite_file(tmp_path).read_bytes() == before


@pytest.fixture
def store(tmp_path):
    return ml_metadata.MetadataStore(metadata.connection(tmp_path))


def put_run(store, name, state, **properties):
    """Records a run with an execution in `state`; returns the execution's id."""
    types = [
        store.put_context_type(mlmd.ContextType(name="pipeline_run")),
        store.put_execution_type(mlmd.ExecutionType(name="Trainer")),
    ]
    context = mlmd.Context(type_id=types[0], name=name)
    for key, value in properties.items():
        context.custom_properties[key].string_value = value
    execution = mlmd.Execution(type_id=types[1], last_known_state=state)
    found, _, _ = store.put_execution(
        execution, [], [context], reuse_context_if_already_exist=True
    )
    return found


def test_only_dead_runs_of_this_root_are_closed(store, tmp_path):
    running, complete = mlmd.Execution.RUNNING, mlmd.Execution.COMPLETE
    ended = put_run(store, "ended", complete, pipeline="p", outcome="blessed")
    dead = put_run(store, "dead", running, pipeline="p")
    done = put_run(store, "dead", complete)
    elsewhere = put_run(store, "elsewhere", running, pipeline="p")
    journal.close_abandoned(metadata.connection(tmp_path), "p", {"dead", "ended"})
    states = {
        execution.id: execution.last_known_state for execution in store.get_executions()
    }
    assert states == {
        dead: mlmd.Execution.FAILED,
        done: complete,
        elsewhere: running,
        ended: complete,
    }
    outcomes = {
        context.name: context.custom_properties["outcome"].string_value
        for context in store.get_contexts()
    }
    assert outcomes == {"dead": "interrupted", "elsewhere": "", "ended": "blessed"}


def test_what_a_full_disk_left_of_an_artifact_does_not_pass_to_the_next(tmp_path):
    config = metadata.connection(tmp_path)
    store = metadata.initialise(config)
    failed = put_run(store, "failed", mlmd.Execution.FAILED, pipeline="p")
    with contextlib.closing(sqlite3.connect(config.sqlite.filename_uri)) as database:
        lost = "INSERT INTO Event (artifact_id, execution_id, type) VALUES (1, ?, 4)"
        database.execute(lost, [failed])
        database.commit()
    outputs = Store(config, root=tmp_path).outputs_of([failed])
    assert outputs == {}
    store = metadata.initialise(config)
    kind = store.put_artifact_type(mlmd.ArtifactType(name="Model"))
    (next_one,) = store.put_artifacts([mlmd.Artifact(type_id=kind, uri="x")])
    assert not store.get_events_by_artifact_ids([next_one])

"""What `clean --records` removes from a real SQLite database, and what it keeps."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import ml_metadata
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.errors import BadInputError, UserError
from strategos.components.files import commit
from strategos.pipeline.history import runs as history
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import metadata
from strategos.pipeline.run import record_cleaning

INPUT, OUTPUT = mlmd.Event.INPUT, mlmd.Event.OUTPUT
NODES = ("ExampleGen", "Trainer", "BaselineModel", "Evaluator")


class House:
    """A database with runs, each of which takes some nodes from earlier ones.

    Args:
      root: An empty folder.
      runs: For each run, by node, how many runs ago the output was made; 0 for now.
    """

    def __init__(self, root: Path, runs):
        self.root = root
        store = ml_metadata.MetadataStore(metadata.connection(root))
        kind = store.put_artifact_type(mlmd.ArtifactType(name="Model"))
        types = {
            name: store.put_execution_type(mlmd.ExecutionType(name=f"x.{name}"))
            for name in NODES
        }
        contexts = {
            name: store.put_context_type(mlmd.ContextType(name=name))
            for name in ("pipeline", "pipeline_run", "execution_cache")
        }
        pipeline = mlmd.Context(type_id=contexts["pipeline"], name="p")
        (pipeline.id,) = store.put_contexts([pipeline])
        made: list[dict[str, tuple[mlmd.Artifact, int]]] = []
        for number, ago in enumerate(runs):
            run = mlmd.Context(type_id=contexts["pipeline_run"], name=f"run-{number}")
            run.custom_properties["started"].double_value = 1000.0 + number
            run.custom_properties["pipeline"].string_value = "p"
            (run.id,) = store.put_contexts([run])
            store.put_parent_contexts(
                [mlmd.ParentContext(child_id=run.id, parent_id=pipeline.id)]
            )
            made.append({})
            for node, back in zip(NODES, ago, strict=True):
                if back and number >= back and node in made[number - back]:
                    artifact, maker = made[number - back][node]
                else:
                    artifact, maker = mlmd.Artifact(type_id=kind, uri="x"), number
                    artifact.custom_properties["of"].string_value = f"{number} {node}"
                inputs = {"Trainer": ["ExampleGen"], "Evaluator": NODES[:3]}
                read = [made[number][x][0] for x in inputs.get(node, ())]
                cache = mlmd.Context(
                    type_id=contexts["execution_cache"], name=f"{maker} {node}"
                )
                pairs = [(each, mlmd.Event(type=INPUT)) for each in read]
                pairs += [(artifact, mlmd.Event(type=OUTPUT))]
                _, ids, _ = store.put_execution(
                    mlmd.Execution(type_id=types[node]),
                    *(pairs, [run, pipeline, cache]),
                    reuse_context_if_already_exist=True,
                )
                artifact.id = ids[-1]
                made[number][node] = artifact, maker
        self.makers = [
            {node: maker for node, (_, maker) in nodes.items()} for nodes in made
        ]

    @property
    def store(self) -> Store:
        return Store(metadata.connection(self.root), root=self.root)

    def names(self) -> set[str]:
        found = self.store.mlmd.get_contexts_by_type("pipeline_run")
        return {each.name for each in found}

    def facts(self, runs) -> dict:
        """All that the API knows of runs: nodes, artifacts, and what led to them."""
        store, found = self.store, {}
        for name in sorted(runs):
            run = store.mlmd.get_context_by_type_and_name("pipeline_run", name)
            own = store.mlmd.get_executions_by_context(run.id)
            outputs = store.outputs_of(x.id for x in own)
            ids = [a.id for made in outputs.values() for a in made]
            events = {str(e) for e in store.upstream(*ids)}
            texts = sorted(map(str, [run, *own])), sorted(map(str, outputs.items()))
            found[name] = (*texts, events)
        return found


def needed(house, kept):
    """An oracle of the rule: runs that are kept, and makers of what those use."""
    stay, todo = set(), {*kept}
    while todo:
        stay |= todo
        used = {
            maker
            for run in todo
            for node, maker in house.makers[run].items()
            if node != "BaselineModel"
        }
        todo = used - stay
    return {f"run-{number}" for number in stay}


AGO = st.lists(st.tuples(*[st.integers(0, 3)] * len(NODES)), min_size=1, max_size=7)


@settings(max_examples=3, deadline=None)
@given(runs=AGO, data=st.data())
def test_kept_runs_are_as_before_and_the_rest_is_gone(runs, data, tmp_path_factory):
    check(runs, data, tmp_path_factory)


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(runs=AGO, data=st.data())
def test_more_kept_runs_are_as_before_and_the_rest_is_gone(
    runs, data, tmp_path_factory
):
    check(runs, data, tmp_path_factory)


def check(runs, data, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    house = House(root, runs)
    kept = data.draw(st.sets(st.integers(0, len(runs) - 1)))
    stay = needed(house, kept)
    gone = record_cleaning.unneeded(house.store, {f"run-{x}" for x in kept})
    assert {*gone} == house.names() - stay
    before, last = house.facts(stay), _last(root)
    copy = record_cleaning.remove(str(root), gone)
    assert house.names() == stay
    assert house.facts(stay) == before
    assert _last(root) == last  # an id names folders: none is ever given again
    assert _count(copy, "Context") >= _count(metadata.sqlite_file(root), "Context")
    store = house.store
    ids = [x.id for x in store.mlmd.get_executions()]
    events = store.mlmd.get_events_by_execution_ids(ids) if ids else []
    used = {each.artifact_id for each in events}
    assert {x.id for x in store.mlmd.get_artifacts()} == used
    caches = store.mlmd.get_contexts_by_type("execution_cache")
    assert all(store.mlmd.get_executions_by_context(each.id) for each in caches)
    shutil.rmtree(root)


def _last(root):
    with sqlite3.connect(metadata.sqlite_file(root)) as file:
        return dict(file.execute("SELECT name, seq FROM sqlite_sequence"))


def _count(file, table):
    with sqlite3.connect(file) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.fixture
def house(tmp_path):
    return House(tmp_path, [(0, 0, 0, 0), (1, 0, 1, 0), (0, 0, 1, 0), (1, 1, 1, 0)])


def test_lineage_ends_at_a_baseline_that_an_older_run_imported(house):
    gone = record_cleaning.unneeded(house.store, {"run-3"})
    assert gone == ["run-1", "run-0"]  # the baseline of run 0, and its data
    record_cleaning.remove(str(house.root), gone)
    made = {
        each.custom_properties["of"].string_value
        for each in house.store.mlmd.get_artifacts()
    }
    assert "0 BaselineModel" in made
    assert not {"0 ExampleGen", "0 Trainer", "1 Trainer"} & made


def test_models_that_fresh_every_counts_stay(tmp_path):
    house = House(tmp_path, [(0, 0, 0, 0)] * 5)
    trained = {
        each.custom_properties["of"].string_value: each
        for each in house.store.mlmd.get_artifacts()
    }
    models = [trained[f"{number} Trainer"] for number in range(5)]
    for number, model in enumerate(models):
        model.uri = f"/models/{number}"
        before = f"/models/{number - 1}/Format-Weights" if number else "none"
        model.custom_properties["warm_start"].string_value = before
    house.store.mlmd.put_artifacts(models)
    gone = record_cleaning.unneeded(house.store, {"run-4"}, 3)
    assert gone == ["run-1", "run-0"]
    assert len(record_cleaning.unneeded(house.store, {"run-4"}, 10)) == 0
    assert len(record_cleaning.unneeded(house.store, {"run-4"})) == 4


def test_a_removed_run_is_said_to_be_removed(house):
    with pytest.raises(UserError) as raised:
        history.run(house.store, "run-9")
    assert "--records" not in str(raised.value)
    metadata.sqlite_file(house.root).chmod(0o600)
    copy = record_cleaning.remove(str(house.root), ["run-0"])
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UserError) as raised:
        history.run(house.store, "run-0")
    assert f"removed those of older runs; {copy} has them" in str(raised.value)


def test_each_cleaning_keeps_a_copy_of_its_own(house):
    first = record_cleaning.remove(str(house.root), ["run-0"])
    records = _count(first, "Context")
    second = record_cleaning.remove(str(house.root), ["run-1"])
    assert (first != second, _count(first, "Context")) == (True, records)
    with pytest.raises(UserError) as raised:
        history.run(house.store, "run-0")
    assert f"removed those of older runs; {first} and {second} have" in str(
        raised.value
    )
    first.unlink()  # by the user, who does not need it any more
    third = record_cleaning.remove(str(house.root), ["run-2"])
    assert third not in (first, second) and second.is_file()


KILLED = """
import contextlib, os, sqlite3, sys
from strategos.pipeline.run import record_cleaning
root, where = sys.argv[1:]

@contextlib.contextmanager
def transaction(database):
    database.execute("PRAGMA cache_size = 1")  # writes go to the file at once
    database.execute("BEGIN IMMEDIATE")
    yield
    if where == "committed":
        database.execute("COMMIT")
    os.kill(os.getpid(), 9)

if where == "copy":
    os.replace = lambda *names: os.kill(os.getpid(), 9)
record_cleaning._transaction = transaction
record_cleaning.remove(root, ["run-0", "run-1"])
"""


@pytest.mark.parametrize("where", ["copy", "deleted", "committed"])
def test_a_kill_leaves_all_records_or_those_that_stay(house, where):
    before, everything = house.facts(house.names()), house.names()
    words = [sys.executable, "-c", KILLED, str(house.root), where]
    assert subprocess.run(words).returncode == -9
    after = {"run-2", "run-3"} if where == "committed" else everything
    assert house.names() == after
    assert house.facts(after) == {name: before[name] for name in after}
    record_cleaning.remove(str(house.root), everything - {"run-2", "run-3"})
    assert house.names() == {"run-2", "run-3"}


def test_a_damaged_database_or_a_full_disk_removes_nothing(house, monkeypatch):
    def full(*names):
        raise OSError(28, "No space left on device")

    before = house.facts(house.names())
    with monkeypatch.context() as patched:
        patched.setattr(commit.os, "replace", full)
        with pytest.raises(UserError, match="No space left on device"):
            record_cleaning.remove(str(house.root), ["run-0"])
    with monkeypatch.context() as patched:
        patched.setattr(record_cleaning, "_DANGLING", "SELECT 1")
        with pytest.raises(UserError, match="would lack its other end"):
            record_cleaning.remove(str(house.root), ["run-0"])
    assert house.facts(house.names()) == before


def test_records_on_a_server_stay(workload):
    from strategos.pipeline.config import loading

    server = ["run.metadata=mysql://u@h/d", "name=p"]
    with pytest.raises(BadInputError, match="on a server"):
        record_cleaning.check(loading.load(workload, (), server).config)
    record_cleaning.check(loading.load(workload, (), ()).config)

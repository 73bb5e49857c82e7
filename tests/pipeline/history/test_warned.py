"""Warnings of a run: of its events, of what its nodes made, and of its evaluation."""

from __future__ import annotations

import json

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import events
from strategos.pipeline.history import warned


@pytest.fixture
def store():
    config = mlmd.ConnectionConfig()
    config.fake_database.SetInParent()
    return metadata_store.MetadataStore(config)


@pytest.fixture
def execute(store):
    """Records an execution with an input, and an output if asked for."""
    kind = store.put_artifact_type(mlmd.ArtifactType(name="Examples"))
    node = store.put_execution_type(mlmd.ExecutionType(name="Node"))
    (given,) = store.put_artifacts([mlmd.Artifact(type_id=kind)])

    def make(outputs=1):
        made = store.put_artifacts([mlmd.Artifact(type_id=kind)] * outputs)
        (execution,) = store.put_executions([mlmd.Execution(type_id=node)])
        for kind_of, ids in ((mlmd.Event.INPUT, [given]), (mlmd.Event.OUTPUT, made)):
            for each in ids:
                event = mlmd.Event(
                    artifact_id=each, execution_id=execution, type=kind_of
                )
                store.put_events([event])
        return execution, store.get_artifacts_by_id([*made, given][:1])

    return make


def of_artifact(store, artifact):
    return warned.read({}, store.get_artifacts_by_id([artifact.id]), {"Node"}, None)


def test_warnings_of_a_node_belong_to_its_output(store, execute):
    execution, (artifact,) = execute()
    warned.keep(store, execution, "Node", ["one", "two", "one"])
    assert of_artifact(store, artifact) == (("Node", "one"), ("Node", "two"))
    assert warned.read({}, store.get_artifacts(), {"Other"}, None) == ()


def test_a_gate_replaces_its_warnings_on_its_input(store, execute):
    for messages in (["one"], ["two"], []):
        execution, (artifact,) = execute(outputs=0)
        warned.keep(store, execution, "Node", messages)
        expected = tuple(("Node", text) for text in messages)
        assert of_artifact(store, artifact) == expected


def test_all_warnings_of_a_run_are_read_from_its_events(tmp_path):
    file = str(tmp_path / "events.jsonl")
    events.open_sink(file, node="Trainer")
    events.emit("warning", message="first")
    start = events.size(file)
    events.emit("note", message='{"event": "warning"}')
    events.emit("warning", message="x" * 5_000)
    events.emit("warning", message="of no node", node=None)
    events.open_sink(None)
    with open(file, "a") as damaged:
        damaged.write('{"event": "warning", "mess')
    assert len(events.recorded(file, "warning", start)) == 2
    text = warned.of_run(events.recorded(file, "warning"))
    found = warned.read({"warnings": text}, (), (), None)
    assert [node for node, _ in found] == ["Trainer", "Trainer", ""]
    assert found[0][1] == "first" and len(found[1][1]) == 1_002


def test_many_warnings_are_counted():
    made = [{"node": "Node", "message": f"{i}"} for i in range(25)]
    found = json.loads(warned.of_run(made))
    assert found["Node"][-2:] == ["19", "and 5 more"]


def test_warnings_of_the_evaluation_are_those_of_its_summary_once():
    run = {"warnings": json.dumps({"Evaluator": ["a"]})}
    found = warned.read(run, (), (), {"warnings": ["a", "b"]})
    assert found == (("Evaluator", "a"), ("Evaluator", "b"))

"""ML Metadata of Kubeflow Pipelines, by the real client of its service."""

from __future__ import annotations

import dataclasses
import runpy
from concurrent import futures
from pathlib import Path

import grpc
import ml_metadata
import pytest
from ml_metadata.metadata_store.pywrap.metadata_store_extension import (
    metadata_store as store_methods,
)
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.errors import UserError
from strategos.pipeline import remote_command
from strategos.pipeline.cli import main
from strategos.pipeline.config import loading
from strategos.pipeline.history import kubeflow, lineage, runs

SERVER = Path(__file__).parents[2] / "lab" / "kubernetes" / "metadata_server.py"
RUN = "0c3f7a52-6d0e-4d6a-9f3a-1d2b3c4d5e6f"


class Recorder:
    """Records runs as the driver and the launcher of KFP 2.0.5 do."""

    def __init__(self, store):
        self._store = store
        self._step = store.put_execution_type(
            mlmd.ExecutionType(name="system.ContainerExecution")
        )
        self._dag = store.put_execution_type(
            mlmd.ExecutionType(name="system.DAGExecution")
        )

    def run(self, name, pipeline="flights"):
        both = []
        for kind, of in (("system.Pipeline", pipeline), ("system.PipelineRun", name)):
            known = self._store.get_context_by_type_and_name(kind, of)
            if known is None:
                number = self._store.put_context_type(mlmd.ContextType(name=kind))
                known = mlmd.Context(type_id=number, name=of)
                known.custom_properties["namespace"].string_value = "kubeflow"
                (known.id,) = self._store.put_contexts([known])
            both.append(known)
        root = mlmd.Execution(type_id=self._dag)
        root.last_known_state = mlmd.Execution.RUNNING
        self._store.put_execution(root, [], both)
        return both

    def artifact(self, kind, **facts):
        number = self._store.put_artifact_type(mlmd.ArtifactType(name=f"tfx.{kind}"))
        made = mlmd.Artifact(type_id=number, uri=f"minio://mlpipeline/{kind}")
        for name, value in {"display_name": kind, **facts}.items():
            field = "string_value" if isinstance(value, str) else "double_value"
            setattr(made.custom_properties[name], field, value)
        return made

    def step(self, run, node, *made, read=(), state="COMPLETE", **parameters):
        step = mlmd.Execution(type_id=self._step)
        step.last_known_state = mlmd.Execution.State.Value(state)
        step.custom_properties["task_name"].string_value = node
        step.custom_properties["pod_name"].string_value = "flights-1-impl-2"
        if parameters:
            step.custom_properties["inputs"].struct_value.update(parameters)
        output = [mlmd.Event.Path.Step(key="output")]
        pairs = [(each, mlmd.Event(type=mlmd.Event.INPUT)) for each in read]
        for each in made:
            event = mlmd.Event(type=mlmd.Event.OUTPUT)
            event.path.steps.extend(output)
            pairs.append((each, event))
        _, ids, _ = self._store.put_execution(step, pairs, run)
        for artifact, number in zip([*read, *made], ids, strict=True):
            artifact.id = number


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Address of a metadata service with a blessed, a stopped and a running run."""
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = str(tmp_path_factory.mktemp("kfp") / "metadata")
    config.sqlite.connection_mode = 3
    record = Recorder(ml_metadata.MetadataStore(config))
    examples = record.artifact("Examples", rows=200.0, spans="[[1, null]]")
    model = record.artifact("Model", strategy="one_device", history='{"loss": [0.5]}')
    model.custom_properties["steps"].double_value = 7.0
    measured = record.artifact("ModelEvaluation", auc=1.0, examples=20.0)
    verdict = record.artifact("ModelBlessing", blessed=1.0)
    pushed = record.artifact(
        "PushedModel",
        pushed=1.0,
        pushed_destination="s3://models/flights/1795369694",
        pushed_version="1795369694",
    )
    first = record.run(RUN)
    record.step(first, "Resolve")
    record.step(first, "ExampleGen", examples, fingerprint="abc", keep=3)
    record.step(first, "Trainer", model, read=[examples], epochs=5.0)
    record.step(first, "Evaluator", measured, verdict, read=[model, examples])
    record.step(first, "EvaluationGate", read=[verdict])
    record.step(first, "Pusher", pushed, read=[model])
    second = record.run("stopped-run")
    record.step(second, "ExampleGen", examples, state="CACHED")
    record.step(second, "AnomalyGate", state="FAILED")
    record.step(record.run("live-run"), "Trainer", state="RUNNING")

    handlers = [
        runpy.run_path(str(SERVER))["Methods"](
            store_methods.CreateMetadataStore(
                config.SerializeToString(), mlmd.MigrationOptions().SerializeToString()
            )
        )
    ]
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None)


def test_run_on_kubeflow_reads_like_a_local_one(recorded):
    found = runs.run(kubeflow.KubeflowStore(recorded), RUN)
    assert (found.pipeline, found.outcome) == ("flights", "blessed")
    assert found.blessed is True
    assert found.metrics == {"auc": 1.0}
    assert found.pushed == ("s3://models/flights/1795369694", "1795369694")
    assert found.trainer["strategy"] == "one_device"
    assert (found.trainer["steps"], found.trainer["history"]) == (7, {"loss": [0.5]})
    assert [(node.name, node.state) for node in found.nodes][:2] == [
        ("Resolve", "complete"),
        ("ExampleGen", "complete"),
    ]
    rows = {node.name: node.rows for node in found.nodes}
    assert (rows["ExampleGen"], rows["Evaluator"]) == (200, 20)
    assert found.duration is not None


def test_history_has_the_outcome_of_each_run(recorded):
    listed = runs.history(kubeflow.KubeflowStore(recorded))
    assert [(run.run_id, run.outcome, run.failed_node) for run in listed] == [
        ("live-run", "running", None),
        ("stopped-run", "stopped", "AnomalyGate"),
        (RUN, "blessed", None),
    ]
    assert {run.pipeline for run in listed} == {"flights"}
    states = runs.run(kubeflow.KubeflowStore(recorded), "stopped").nodes
    assert [node.state for node in states] == ["cached", "stopped"]


def test_lineage_leads_from_the_version_to_the_data(recorded):
    store = kubeflow.KubeflowStore(recorded)
    for name in ("1795369694", RUN):
        found = lineage.lineage(store, name)
        assert [step.node for step in found.steps] == [
            "ExampleGen",
            "Trainer",
            "Pusher",
        ]
        assert (found.pipeline, found.run_id) == ("flights", RUN)
    assert found.steps[0].parameters == {"fingerprint": "abc", "keep": 3}
    assert found.steps[1].parameters == {"epochs": 5}


def test_commands_take_the_address_as_the_root(recorded, capsys):
    assert main(["runs", "--root", recorded]) == 0
    assert RUN[:8] in capsys.readouterr().out
    assert main(["runs", "show", RUN, "--root", recorded]) == 0
    assert "1795369694" in capsys.readouterr().out
    assert main(["lineage", "1795369694", "--root", recorded]) == 0
    assert "ExampleGen" in capsys.readouterr().out
    assert main(["tensorboard", "--root", recorded]) == 2
    assert "in its object store" in capsys.readouterr().err


def test_table_of_a_followed_run_has_what_its_steps_recorded(
    recorded, workload, capsys
):
    def table(address):
        section = f"kubeflow={{image: i, metadata: '{address}'}}"
        config = loading.load(workload, (), [section]).config
        nodes = (runs.NodeRun("ExampleGen", "complete", 3.0),)
        told = runs.Run(RUN, "flights", 0.0, 9.0, "blessed", nodes=nodes)
        told = dataclasses.replace(told, runner="kubeflow")
        return told, remote_command._with_facts(config, told, {})

    told, found = table(recorded)
    assert (found.metrics, found.blessed) == ({"auc": 1.0}, True)
    assert found.pushed == ("s3://models/flights/1795369694", "1795369694")
    assert found.nodes == (dataclasses.replace(told.nodes[0], rows=200),)
    told, found = table("grpc://127.0.0.1:1")
    assert found == told
    assert "grpc://127.0.0.1:1 cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address, message",
    [
        ("grpc://127.0.0.1:1", "cannot be read"),
        ("grpc://nowhere", "grpc://HOST:PORT"),
        ("grpc://user@host:8080", "grpc://HOST:PORT"),
        ("grpc://host:80a", "grpc://HOST:PORT"),
    ],
)
def test_what_is_no_metadata_service_is_rejected(address, message):
    with pytest.raises(UserError) as raised:
        kubeflow.KubeflowStore(address)
    assert message in str(raised.value)

"""Executors on local copies of artifacts on S3; the executors are functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.proto.orchestration import execution_result_pb2, pipeline_pb2
from tfx.types.standard_artifacts import Examples, Model, ModelRun

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.components.files import listing, storage
from strategos.components.trainer.operation import Operation
from strategos.pipeline.runners.remote_root.artifacts import Copies


@pytest.fixture
def root(bucket, request, tmp_path, monkeypatch):
    """The URL of an empty root, whose local state is in the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return f"{bucket}/{request.node.name}"


@pytest.fixture
def copies(root):
    return Copies(root, Operation(checkpoint_key="key"))


def artifact(kind, uri, number):
    made = kind()
    made.uri, made.id = uri, number
    return made


def execution(root, number=2, node=node_ids.TRAINER):
    """An execution that makes a model and logs from examples."""
    folder = f"{root}/p/{node}"
    system = f"{folder}/.system"
    return ExecutionInfo(
        execution_id=number,
        input_dict={
            "examples": [artifact(Examples, f"{root}/p/ExampleGen/examples/1", 1)]
        },
        output_dict={
            "model": [artifact(Model, f"{folder}/model/{number}", 2)],
            "model_run": [artifact(ModelRun, f"{folder}/model_run/{number}", 3)],
        },
        execution_output_uri=f"{system}/executor_execution/{number}/output.pb",
        stateful_working_dir=f"{system}/stateful_working_dir/x",
        tmp_dir=f"{system}/executor_execution/{number}/.temp/",
        pipeline_node=pipeline_pb2.PipelineNode(
            node_info=pipeline_pb2.NodeInfo(id=node)
        ),
    )


def train(spec, info):
    """An executor: the model is what the examples say."""
    (examples,), (model,) = info.input_dict["examples"], info.output_dict["model"]
    said = "".join(storage.read(each).decode() for each in listing.listed(examples.uri))
    Path(model.uri, "part").mkdir()
    Path(model.uri, "part", "weights").write_text(said)
    assert Path(info.tmp_dir).is_dir() and Path(info.stateful_working_dir).is_dir()
    output = execution_result_pb2.ExecutorOutput()
    model.set_string_custom_property("copied_from", model.uri)
    output.output_artifacts["model"].artifacts.append(model.mlmd_artifact)
    return output


def put(client, url, content):
    bucket, _, key = url.removeprefix("s3://").partition("/")
    client.put_object(Bucket=bucket, Key=key, Body=content)


def below(url):
    return sorted(each.path.rpartition("/")[2] for each in listing.objects(url))


def test_executor_works_on_folders_and_ml_metadata_gets_urls(
    root, copies, bucket_client
):
    put(bucket_client, f"{root}/p/ExampleGen/examples/1/rows", b"rows")
    info = execution(root)
    output = copies.execute(train, None, info)
    (model,) = output.output_artifacts["model"].artifacts
    assert model.uri == info.output_dict["model"][0].uri == f"{root}/p/Trainer/model/2"
    assert model.custom_properties["copied_from"].string_value == model.uri
    assert below(model.uri) == ["weights"]
    assert below(f"{root}/p/Trainer/model_run/2") == []


def test_copies_last_for_the_run(root, copies, bucket_client):
    put(bucket_client, f"{root}/p/ExampleGen/examples/1/rows", b"rows")
    copies.execute(train, None, execution(root, node="Own"))
    put(bucket_client, f"{root}/p/ExampleGen/examples/1/rows", b"others")
    model = Path(copies.local(f"{root}/p/Own/model/3/part/weights"))
    copies.execute(train, None, execution(root, 3, "Own"))
    assert model.read_text() == "rows"
    copies.clear()
    assert not model.exists()
    Copies(root, Operation()).execute(train, None, execution(root, 3, "Own"))
    assert model.read_text() == "others"


def test_examples_are_streamed_except_by_a_node_of_the_user(root, copies):
    url = f"{root}/p/ExampleGen/examples/1"

    def place(node):
        """Where an executor of this node sees and writes examples."""

        def write(spec, info):
            (read,), (made,) = info.input_dict["examples"], info.output_dict["made"]
            storage.write(f"{made.uri}/rows", "rows")
            places.append(read.uri)
            return execution_result_pb2.ExecutorOutput()

        places, info = [], execution(root, node=node)
        info.output_dict["made"] = [artifact(Examples, f"{root}/p/{node}/made/2", 4)]
        copies.execute(write, None, info)
        assert below(f"{root}/p/{node}/made/2") == ["rows"]
        return places

    for node in (node_ids.STATISTICS_GEN, node_ids.TRANSFORM, node_ids.TRAINER):
        assert place(node) == [url]
        assert not Path(copies.local(f"{root}/p/{node}/made")).exists()
    assert place("Own") == [copies.local(url)]


def test_outputs_of_a_failure_are_not_uploaded(root, copies):
    def fail(spec, info):
        Path(info.output_dict["model"][0].uri, "half").touch()
        result = execution_result_pb2.ExecutionResult(code=1)
        return execution_result_pb2.ExecutorOutput(execution_result=result)

    copies.execute(fail, None, execution(root))
    assert below(f"{root}/p") == []


def test_failed_upload_is_a_failed_node(root, copies, monkeypatch):
    def fail(*_):
        raise OSError("the store does not answer")

    monkeypatch.setattr(storage, "put", fail)
    with pytest.raises(UserError, match="nothing can be written there: the store"):
        copies.execute(train, None, execution(root))


def test_link_to_a_pushed_model_is_not_uploaded(root, copies, tmp_path):
    (tmp_path / "version").mkdir()
    (tmp_path / "version" / "saved_model.pb").touch()

    def push(spec, info):
        folder = Path(info.output_dict["model"][0].uri)
        folder.rmdir()
        folder.symlink_to(tmp_path / "version")
        return execution_result_pb2.ExecutorOutput()

    copies.execute(push, None, execution(root, node=node_ids.PUSHER))
    assert below(f"{root}/p") == []
    copies.clear()
    assert (tmp_path / "version" / "saved_model.pb").exists()


def test_checkpoints_and_a_finished_model_outlast_the_run_until_it_is_registered(
    root, copies
):
    trainer = Path(copies.local(f"{root}/p/Trainer"))
    checkpoint, mark = trainer / "checkpoints/key/step-1/state.json", {}
    for name in ("model", "logs"):
        mark[name] = f"{name}/7"
        (trainer / mark[name]).mkdir(parents=True)
    (trainer / "model/6").mkdir()
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    (trainer / "checkpoints/key/finished.json").write_text(json.dumps(mark))
    copies.clear()
    left = {str(path.relative_to(trainer)) for path in trainer.glob("*/*")}
    assert left == {"model/7", "logs/7", "checkpoints/key"} and checkpoint.exists()
    copies.forget_checkpoints(f"{root}/p/Trainer/model/7")
    copies.clear()
    assert not trainer.exists()

"""The environment and temporary folders of executors, and processes that die."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from strategos.components.errors import GateStoppedError, Place, UserError
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners import beam, read_result, write_result
from strategos.pipeline.runners.executor_client import ExecutorClient

_COMPONENT = """
import json
import os
from tfx.v1.dsl.components import OutputArtifact, Parameter, component
from tfx.v1.types.standard_artifacts import Model

@component
def Trainer(model: OutputArtifact[Model], epochs: Parameter[int]):
    with open(os.environ["SEEN"], "w") as file:
        json.dump({"seen": os.environ.get("STRATEGOS_TRAINER")}, file)
    with open(os.path.join(model.uri, "made"), "w") as file:
        file.write("by a test")
"""

_RUN = """
import json
import os
import sys
from pathlib import Path
from tfx.dsl.compiler.compiler import Compiler
from tfx.orchestration.pipeline import Pipeline
from strategos.components.trainer.operation import Operation
from strategos.pipeline.root import metadata
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners.beam import BeamRunner
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.local import LocalRunner
from only_trainer import Trainer

runner, root = sys.argv[1], Path(sys.argv[2])
connection = metadata.connection(str(root))
metadata.initialise(connection)
pipeline = Pipeline("p", str(root / "p"), components=[Trainer(epochs=3)])
log, events = root / "log.txt", root / "events.jsonl"
with ExecutorClient(log, events) as client:
    for restarts, cache in ((7, False), (8, True)):
        ir = Compiler().compile(pipeline)
        from tfx.orchestration.portable import runtime_parameter_utils
        values = {"pipeline-run-id": f"run-{restarts}"}
        runtime_parameter_utils.substitute_runtime_parameter(ir, values)
        ir.nodes[0].pipeline_node.execution_options.caching_options.enable_cache = cache
        environment = Operation(max_restarts=restarts).to_environment()
        plan = Plan(f"run-{restarts}", ir, connection, events, log, {}, environment)
        events.touch()
        (LocalRunner(client) if runner == "local" else BeamRunner()).run(plan)
        print(Path(os.environ["SEEN"]).read_text())
print(events.read_text())
"""


@pytest.mark.long
@pytest.mark.parametrize("runner", ["local", "beam"])
def test_executors_learn_how_to_run_and_caching_does_not_see_it(
    write, tmp_path, runner, warm_tfx
):
    write("modules/only_trainer.py", _COMPONENT)
    running = warm_tfx.script(
        *(_RUN, runner, str(tmp_path)),
        PYTHONPATH=str(tmp_path / "modules"),
        SEEN=str(tmp_path / "seen.json"),
    )
    lines = running.output().splitlines()
    lines = [json.loads(line) for line in lines if line[:1] == "{"]
    seen = [line for line in lines if "seen" in line]
    restarts = [json.loads(each["seen"])["max_restarts"] for each in seen]
    assert restarts == [7, 7]  # the second was not executed
    states = [line["state"] for line in lines if line.get("event") == "node_finished"]
    assert states == ["complete", "cached"]


def test_executor_process_that_was_killed_while_idle_is_reported(tmp_path):
    client = ExecutorClient(tmp_path / "log.txt", tmp_path / "events.jsonl")
    with pytest.raises(UserError, match="was killed .SIGKILL"), client:
        client.start()
        client._process.kill()
        client._process.wait()
        client.compile(None, None, {}, tmp_path / "ir")


def test_processes_that_run_user_code_lack_the_password(tmp_path, monkeypatch):
    monkeypatch.setenv("STRATEGOS_METADATA_PASSWORD", "not-a-secret")
    monkeypatch.setenv("KEPT", "yes")
    with ExecutorClient(tmp_path / "log.txt", tmp_path / "events.jsonl") as client:
        client.start()
        environ = Path(f"/proc/{client._process.pid}/environ")
        while b"KEPT=yes" not in environ.read_bytes():  # until `exec` has happened
            time.sleep(0.01)
        assert b"TMPDIR=" in environ.read_bytes()
        assert b"PASSWORD" not in environ.read_bytes()


@pytest.mark.parametrize(
    ("last", "blamed"), [("node_started", "Transform"), ("node_finished", "(none)")]
)
def test_node_is_blamed_for_the_end_of_beam_only_if_it_was_at_work(
    tmp_path, last, blamed
):
    file = tmp_path / "events.jsonl"
    reported = (("node_started", "Transform"), (last, "Transform"), ("warning", None))
    lines = [json.dumps({"event": event, "node": node}) for event, node in reported]
    file.write_text("\n".join(lines))
    plan = Plan("run", None, None, events=file, log=tmp_path / "log.txt")
    assert beam._failure(plan, -9).node == blamed


def test_an_error_keeps_its_fields_in_the_result_that_ml_metadata_records():
    from google.protobuf import json_format
    from tfx.proto.orchestration import execution_result_pb2

    place = Place("schema.pbtxt", 3, 1)
    error = GateStoppedError("too many", key="label", place=place, remedy="Less.")
    result = execution_result_pb2.ExecutorOutput().execution_result
    write_result(error, result)
    assert (result.code, result.result_message) == (3, str(error))
    recorded = json_format.MessageToJson(result)  # as TFX does it
    back = read_result(json_format.Parse(recorded, type(result)()))
    assert back.to_json() == error.to_json()

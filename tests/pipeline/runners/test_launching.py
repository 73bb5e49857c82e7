"""Which failures of a node are tried again: those for a passing reason."""

from __future__ import annotations

import json

import pytest

from strategos.components import errors, events
from strategos.components.errors import PassingError
from strategos.components.files import object_stores
from strategos.pipeline.runners import described, launching

_COMPONENT = """
import os
from tfx.v1.dsl.components import OutputArtifact, component
from tfx.v1.types.standard_artifacts import Model

@component
def Trainer(model: OutputArtifact[Model]):
    target = os.environ["TARGET"]
    try:
        with open(target, "w", buffering=1) as file:
            file.write("made\\n")
    finally:  # as if somebody made room
        if os.path.islink(target):
            os.remove(target)
    raise_ = os.environ.get("RAISE")
    if raise_:
        raise ValueError(raise_)
"""

_RUN = """
import sys
from pathlib import Path
from tfx.dsl.compiler.compiler import Compiler
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import runtime_parameter_utils
from strategos.pipeline.history import runs
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.root import metadata
from strategos.pipeline.runners import NodeFailedError
from strategos.pipeline.runners.beam import BeamRunner
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.local import LocalRunner
from only_trainer import Trainer

runner, root = sys.argv[1], Path(sys.argv[2])
connection = metadata.connection(str(root))
metadata.initialise(connection)
log, events = root / "log.txt", root / "events.jsonl"
events.touch()
ir = Compiler().compile(Pipeline("p", str(root / "p"), components=[Trainer()]))
values = {"pipeline-run-id": "run"}
runtime_parameter_utils.substitute_runtime_parameter(ir, values)
ir.nodes[0].pipeline_node.execution_options.max_execution_retries = 1
plan = Plan("run", ir, connection, events, log)
with ExecutorClient(log, events) as client:
    try:
        (LocalRunner(client) if runner == "local" else BeamRunner()).run(plan)
    except NodeFailedError as failure:
        print(failure.error.message)
print(events.read_text())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("runner", "raises"), [("local", ""), ("beam", ""), ("local", "No space, I think")]
)
def test_a_node_that_met_a_full_disk_is_started_again_and_says_so(
    write, tmp_path, warm_tfx, runner, raises
):
    write("modules/only_trainer.py", _COMPONENT)
    (tmp_path / "target").symlink_to("/dev/full")
    running = warm_tfx.script(
        *(_RUN, runner, str(tmp_path)),
        PYTHONPATH=str(tmp_path / "modules"),
        TARGET=str(tmp_path / "target"),
        RAISE=raises,
    )
    lines = running.output().splitlines()
    found = [json.loads(line) for line in lines if line[:1] == "{"]
    kinds = [each["event"] for each in found]
    end = "node_failed" if raises else "node_finished"
    assert kinds == ["node_started", "warning", end]
    assert found[1]["node"] == "Trainer"
    assert found[1]["message"].startswith("tried again after: no space left in ")
    assert (tmp_path / "target").read_text() == "made\n"
    assert any(raises in line for line in lines)  # the user's error ended the node


def attempts(*outcomes):
    """A node's attempts; each outcome is an error to raise, or a state."""
    left = list(outcomes)

    def attempt():
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return attempt


def test_pauses_double_up_to_a_minute_and_the_last_error_is_raised():
    slept = []
    failing = attempts(*(PassingError(f"try {n}") for n in range(9)))
    with pytest.raises(PassingError, match="try 8"):
        launching.patient(failing, described, 8, slept.append)
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(
    "kind", [*sorted(errors.KINDS.keys() - {"PassingError"}), "KeyboardInterrupt"]
)
def test_no_other_error_is_tried_again(kind, tmp_path):
    error = (errors.KINDS | {"KeyboardInterrupt": KeyboardInterrupt})[kind]("wrong")
    events.open_sink(str(tmp_path / "events"))
    with pytest.raises(type(error)):
        launching.patient(attempts(error, "complete"), described, 3, pytest.fail)
    events.open_sink(None)
    assert (tmp_path / "events").read_text() == ""


AWS = "When reading information for key 'k' in bucket 'b': AWS Error {}: {}"
GOOGLE = "google::cloud::Status({}: Retry policy exhausted ReadObjectNotWrapped: {})"


@pytest.mark.parametrize(  # as Arrow words the answers of both stores
    ("text", "away"),
    [
        (AWS.format("NETWORK_CONNECTION during HeadObject operation", "curlCode"), 1),
        (AWS.format("UNKNOWN (HTTP status 503) during HeadObject operation", "No"), 1),
        (AWS.format("UNKNOWN (HTTP status 429) during HeadObject operation", "No"), 1),
        (AWS.format("SLOW_DOWN during PutObject operation", "Reduce your rate"), 1),
        (AWS.format("ACCESS_DENIED during HeadObject operation", "No response"), 0),
        (AWS.format("RESOURCE_NOT_FOUND during HeadObject operation", "No body"), 0),
        (AWS.format("NO_SUCH_BUCKET during PutObject operation", "Not there"), 0),
        (GOOGLE.format("UNAVAILABLE", "Received HTTP status code: 503"), 1),
        (GOOGLE.format("PERMISSION_DENIED", "Received HTTP status code: 403"), 0),
    ],
)
def test_an_object_store_is_away_if_it_does_not_answer_for_now(text, away):
    error = OSError(text)
    assert isinstance(described(error), PassingError) == away
    reading = object_stores.problems_of("s3://b/k", "run.root", "read")
    with pytest.raises(errors.UserError) as raised, reading:
        raise error
    assert isinstance(raised.value, PassingError) == away
    assert type(errors.from_json(raised.value.to_json())) is type(raised.value)

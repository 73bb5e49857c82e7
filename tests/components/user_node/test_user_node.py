"""The executor of a user's component runs inside of Strategos' own."""

from __future__ import annotations

import json
import sys

import pytest

from strategos.components import events
from strategos.components.errors import ExitCode, GateStoppedError, UserError
from strategos.components.user_code import uses
from strategos.components.user_node import USER_MODULE


@pytest.fixture
def node(tmp_path, copy_workload):
    """Runs an executor of the workload `own` on one folder; the output's folder."""
    from tfx.types import standard_artifacts

    from strategos.components.user_node import executor

    copy_workload("own", tmp_path / "own")

    def run(name, given, made, *, gate=False, **parameters):
        module = {
            "folder": str(tmp_path / "own"),
            "module": "own",
            "component": f"own:{name}",
            "executor": f"own.{name}_Executor",
            "gate": gate,
        }
        artifacts = {}
        for key in (given, made):
            artifact = standard_artifacts.HyperParameters()
            artifact.uri = str(tmp_path / key)
            (tmp_path / key).mkdir(exist_ok=True)
            artifacts[key] = [artifact]
        properties = {USER_MODULE: json.dumps(module), **parameters}
        executor.Executor().Do(
            {given: artifacts[given]}, {made: artifacts[made]}, properties
        )
        assert USER_MODULE in properties
        return tmp_path / made

    return run


def test_a_function_gets_its_artifacts_and_parameters(node, tmp_path):
    made = node("Count", "examples", "counted", times=3.0)
    assert (made / "count.txt").read_text() == "0 files"
    assert not {"own", "helper"} & sys.modules.keys()  # of no other node


def test_what_a_node_imports_counts_as_used_by_it_alone(node, tmp_path):
    path = tmp_path / "events.jsonl"
    path.touch()
    events.open_sink(str(path))
    try:
        for name in ("First", "Second"):
            events.set_node(name)
            node("Count", "examples", "counted", times=3.0)
    finally:
        events.set_node(None)
        events.open_sink(None)
    used = events.recorded(str(path), uses.EVENT)
    for name in ("First", "Second"):
        files = [x["file"] for x in used if x["node"] == name and "file" in x]
        assert {str(tmp_path / "own" / x) for x in ("own.py", "helper.py")} <= {*files}
        assert not [each for each in files if "/src/strategos/" in each]


@pytest.mark.parametrize(
    ("gate", "most", "kind", "code", "says"),
    [
        (True, 1.0, GateStoppedError, ExitCode.STOPPED, "^5 is more than 1$"),
        (False, 1.0, UserError, ExitCode.FAILED, "is not a gate: 5 is more than 1"),
        (True, 9.0, None, ExitCode.DONE, ""),
        (True, "x", UserError, ExitCode.FAILED, r"fails: .*/own\.py:\d+: TypeError"),
    ],
)
def test_only_a_gate_stops_a_run_with_its_own_words(
    node, tmp_path, gate, most, kind, code, says
):
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted" / "count.txt").write_text("5 files")
    if kind is None:
        node("Gate", "counted", "none", gate=gate, most=most)
        return
    with pytest.raises(kind, match=says) as caught:
        node("Gate", "counted", "none", gate=gate, most=most)
    assert caught.value.exit_code == code


def test_an_error_in_a_helper_is_blamed_on_its_line(node, tmp_path):
    with pytest.raises(UserError, match=r"`own:Count` fails: .*/helper\.py:5: Val"):
        node("Count", "examples", "counted", times="x", unit=None)

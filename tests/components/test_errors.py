"""Errors as data: the form that users read, and the form between processes."""

from __future__ import annotations

import json
import pickle

import pytest

from strategos.components.errors import (
    BadInputError,
    ExitCode,
    GateStoppedError,
    Place,
    UserError,
    from_json,
)

FIELDS = {
    "key": "trainer.batch_size",
    "place": Place("pipeline.yaml", 12, 3),
    "received": "3",
    "expected": "at least 4",
    "remedy": "Raise it.",
}


def test_an_error_prints_place_key_and_cause_then_what_to_do():
    assert str(UserError("fewer rows than replicas", **FIELDS)) == (
        "pipeline.yaml:12:3: trainer.batch_size: received 3; fewer rows than replicas\n"
        "    Raise it. Allowed: at least 4."
    )


def test_a_message_that_is_complete_is_printed_as_it_is():
    assert str(UserError("Run without --from.")) == "Run without --from."


def test_passwords_are_in_no_part_of_what_is_printed():
    url = "mysql://me:secret@host/db"
    assert "secret" not in str(UserError(url, received=url, remedy=f"Not {url}."))


@pytest.mark.parametrize("kind", [UserError, BadInputError, GateStoppedError])
@pytest.mark.parametrize("carried", ["json", "pickle"])
def test_class_and_fields_survive_the_way_to_another_process(kind, carried):
    error = kind("fewer rows than replicas", **FIELDS)
    if carried == "json":
        back = from_json(json.loads(json.dumps(error.to_json())))
    else:
        back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind and back.exit_code == kind.exit_code
    assert str(back) == str(error)
    assert {name: getattr(back, name) for name in FIELDS} == FIELDS


def test_a_class_of_one_module_travels_as_the_shared_class_that_it_is():
    class NoRowsError(BadInputError):
        pass

    assert type(from_json(NoRowsError("none").to_json())) is BadInputError


def test_the_process_that_failed_is_named_before_the_place():
    error = UserError("no loss", place=Place("model.py", 3)).of("worker-0")
    assert str(error) == "worker-0: model.py:3: no loss"
    assert error.place.line == 3


def test_exit_codes_are_those_of_the_documentation():
    codes = {code.name: int(code) for code in ExitCode}
    assert codes == {
        "DONE": 0,
        "FAILED": 1,
        "BAD_INPUT": 2,
        "STOPPED": 3,
        "INTERRUPTED": 130,
        "PREEMPTED": 143,
    }

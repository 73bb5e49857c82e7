from __future__ import annotations

import shutil

import pytest
from tfx.types import standard_artifacts

from strategos.components.baseline_model.executor import Executor
from strategos.components.errors import UserError


@pytest.fixture
def model(tmp_path):
    result = standard_artifacts.Model()
    result.uri = str(tmp_path / "artifact")
    return result


@pytest.fixture
def version(tmp_path):
    folder = tmp_path / "serving" / "1700000000"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"index")
    return folder


def run(model, baseline):
    Executor().Do({}, {"model": [model]}, {"baseline": baseline})


def test_copy_outlives_the_version(model, version, tmp_path):
    run(model, str(version))
    shutil.rmtree(version)
    copy = tmp_path / "artifact" / "Format-Serving"
    assert (copy / "saved_model.pb").read_bytes() == b"graph"
    assert (copy / "variables" / "variables.index").read_bytes() == b"index"
    assert model.get_string_custom_property("path") == str(version)
    assert model.get_int_custom_property("none") == 0


def test_no_baseline_is_marked_as_none(model, tmp_path):
    run(model, "none")
    assert model.get_int_custom_property("none") == 1
    assert not (tmp_path / "artifact" / "Format-Serving").exists()


def test_path_that_is_gone_says_what_to_do(model, tmp_path):
    gone = str(tmp_path / "serving" / "1")
    with pytest.raises(
        UserError, match=r"pusher.to: .*1 has no SavedModel.*\n.*--without-baseline"
    ):
        run(model, gone)

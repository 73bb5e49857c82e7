"""The node that predicts: which model, which files, which folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.data_files import predicted_spans
from strategos.components.errors import UserError
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.push_targets import predictions

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def infer(project, tmp_path):
    """Runs the executor on two spans; its `inference_result`."""
    from tfx.types import standard_artifacts as kinds

    from strategos.components.bulk_inferrer.executor import Executor

    for span in (1, 2):
        rows = {"id": [span, 9], "carrier": ["AA", "B6"], "hour": [span, 7]}
        pq.write_table(pa.table(rows), tmp_path / f"new-{span}.parquet")
    trained = tmp_path / "model"
    trained.mkdir()
    version = project / "serving" / "flights" / "10"
    (trained / "Format-Serving").symlink_to(version)
    pattern = str(tmp_path / "new-{SPAN}.parquet")
    result = tmp_path / "result"
    result.mkdir()

    def run(which="latest", *, blessed=None, pushed=None, choice=None, **properties):
        def artifact(kind, uri):
            made = kind()
            made.uri = str(uri)
            return made

        inputs = {"model": [artifact(kinds.Model, trained)]}
        if blessed is not None:
            made = artifact(kinds.ModelBlessing, tmp_path)
            made.set_int_custom_property("blessed", blessed)
            inputs["model_blessing"] = [made]
        if pushed is not None:
            made = artifact(kinds.PushedModel, tmp_path)
            # Launchers of clusters hand numbers over as floats.
            made.set_float_custom_property("pushed", float(bool(pushed)))
            if pushed:
                path = str(version.with_name(pushed))
                made.set_string_custom_property("pushed_destination", path)
                made.set_string_custom_property("pushed_version", pushed)
            inputs["pushed_model"] = [made]
        output = artifact(kinds.InferenceResult, result)
        given = {
            "pattern": pattern,
            "predicted_spans": choice or predicted_spans.choose(pattern, which),
            "destination": str(tmp_path / "scored"),
            "format": "parquet",
            "columns": '["id"]',
            "reading": "{}",
            "readers": "",
            "pipeline": "flights",
        }
        Executor().Do(inputs, {"inference_result": [output]}, given | properties)
        return output

    run.pattern = pattern
    return run


def folder_of(result) -> Path:
    return Path(result.get_string_custom_property("predictions"))


def test_chosen_spans_are_predicted_once_in_order(infer, tmp_path):
    everything = infer("all", blessed=1, pushed="10")
    folder = folder_of(everything)
    assert pq.read_table(folder)["id"].to_pylist() == [1, 9, 2, 9]
    assert everything.get_int_custom_property("rows") == 4
    about = predictions.manifest(str(folder))
    assert about["model"]["version"] == 10
    assert json.loads((tmp_path / "result" / "_manifest.json").read_text()) == about
    before = {x: x.stat().st_mtime_ns for x in folder.iterdir()}
    assert folder_of(infer("1..2", blessed=1, pushed="10")) == folder
    assert {x: x.stat().st_mtime_ns for x in folder.iterdir()} == before
    newest = folder_of(infer(blessed=1, pushed="10"))
    assert newest != folder
    assert pq.read_table(newest)["id"].to_pylist() == [2, 9]


@pytest.mark.parametrize(
    "verdicts", [{"blessed": 0}, {"blessed": 1, "pushed": ""}, {"pushed": ""}]
)
def test_no_rows_are_predicted_by_a_model_that_may_not_serve(infer, tmp_path, verdicts):
    result = infer(**verdicts)
    assert not result.has_custom_property("predictions")
    assert [*(tmp_path / "result").iterdir()] == []
    assert not (tmp_path / "scored").exists()


def test_a_version_that_is_not_live_any_more_does_not_predict(infer, tmp_path, project):
    older = project / "serving" / "flights" / "9"
    older.symlink_to(older.with_name("10"))
    try:
        with pytest.raises(UserError, match="9 is not live any more: .*/10 is"):
            infer(blessed=1, pushed="9")
    finally:
        older.unlink()
    assert not (tmp_path / "scored").exists()


def test_files_that_change_after_the_choice_are_not_predicted(infer, tmp_path):
    choice = predicted_spans.choose(infer.pattern, "all")
    rows = {"id": [5], "carrier": ["AA"], "hour": [5]}
    pq.write_table(pa.table(rows), tmp_path / "new-1.parquet")
    with pytest.raises(UserError, match="changed after the start") as raised:
        infer(choice=choice)
    assert raised.value.key == "predict.data"
    os.unlink(tmp_path / "new-1.parquet")
    with pytest.raises(UserError, match="span 1 of .* does not exist"):
        infer(choice=choice)


@pytest.mark.parametrize(
    ("properties", "key", "message"),
    [
        ({"columns": '["idd"]'}, "predict.columns", "no column `idd`"),
        ({"destination": "/proc/scored"}, "predict.to", "cannot be written"),
    ],
)
def test_errors_name_the_keys_of_the_section(infer, properties, key, message):
    with pytest.raises(UserError, match=message) as raised:
        infer(**properties)
    assert raised.value.key == key
    assert type(raised.value) is UserError  # nodes have run: no BadInputError


def test_a_folder_that_was_begun_is_gone_on_with_and_a_cut_one_is_not(tmp_path):
    def below(key="0123"):
        return OutputFolder.below(str(tmp_path), key, ".csv")

    begun = below()
    begun.check()
    assert below() == begun and below("4567").path != begun.path
    Path(begun.part(0)).write_text("x")
    begun.complete(0, {})
    begun.publish(1, {"files": [{"rows": 1}]})
    assert below() == begun and not predictions.lost(begun.path)
    (file,) = Path(begun.path).glob("*.csv")
    file.write_text("xy")
    assert predictions.lost(begun.path) == f"{file} has another size"
    file.unlink()
    assert predictions.lost(begun.path) == f"{file} is missing"
    Path(begun.path).rename(tmp_path / "20200101-000000-0123")
    assert below().path not in map(str, tmp_path.iterdir())

"""A run predicts new files with its model once that is blessed and pushed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

NODE = "BulkInferrer"
SECTION = """
predict: {data: "new/{SPAN}.csv", to: scored, columns: [id]}
"""


def write(made, span: int, *cells: str) -> Path:
    path = made.folder / "new" / f"{span}.csv"
    path.parent.mkdir(exist_ok=True)
    lines = [f"{n},{cell}" for n, cell in enumerate(cells)]
    path.write_text("\n".join(["id,x", *lines]) + "\n")
    return path


def folders(made) -> list[Path]:
    """Those of predictions, oldest first."""
    found = (made.folder / "scored").glob("*")
    return sorted(found, key=lambda folder: folder.stat().st_mtime_ns)


def content(folder: Path) -> dict:
    """Files by name; of the manifest, all but its time."""
    found = {x.name: x.read_bytes() for x in folder.iterdir()}
    manifest = json.loads(found.pop("_manifest.json"))
    manifest.pop("created")
    return found | manifest


@pytest.fixture(scope="module")
def ran(make_small, tmp_path_factory):
    """The small workload with a section `predict`, after a first run."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    made.yaml.write_text(made.yaml.read_text() + SECTION)
    write(made, 1, "5")
    write(made, 2, *map(str, range(40)))
    shown = made.run().stdout
    (folder,) = folders(made)
    assert f"predicted  {folder}" in shown
    return made


def test_the_newest_span_is_predicted_as_by_the_command(ran, tmp_path):
    words = (str(ran.folder / "new" / "2.csv"), "--output", str(tmp_path / "out"))
    ran.strategos("predict", str(ran.yaml), *words, "--columns", "id")
    (folder,) = folders(ran)
    assert content(folder) == content(tmp_path / "out")
    assert len(pq.read_table(folder)) == 40
    node = next(x for x in ran.last_run()["nodes"] if x["name"] == NODE)
    assert node["rows"] == 40


def test_the_predictions_have_their_model_in_ml_metadata(ran):
    from strategos.pipeline.config import loading
    from strategos.pipeline.root import metadata

    config = loading.load(ran.yaml).config
    store = metadata.store(metadata.of(config), 10)
    (result,) = store.get_artifacts_by_type("InferenceResult")
    (folder,) = folders(ran)
    assert result.custom_properties["predictions"].string_value == str(folder)
    copy = Path(result.uri, "_manifest.json").read_text()
    assert json.loads(copy) == json.loads((folder / "_manifest.json").read_text())
    (made,) = store.get_events_by_artifact_ids([result.id])
    events = store.get_events_by_execution_ids([made.execution_id])
    inputs = store.get_artifacts_by_id([e.artifact_id for e in events if e.type == 3])
    shown = ran.strategos("lineage", result.uri, str(ran.yaml)).stdout
    assert "predicted  40 rows" in shown and "Trainer" in shown
    assert {x.type for x in inputs} == {"Model", "ModelBlessing", "PushedModel"}


def test_only_other_files_or_lost_predictions_are_predicted_again(ran):
    (before,) = folders(ran)
    ran.run()
    assert ran.states()[NODE] == "cached"
    write(ran, 3, "1", "2")
    ran.run()
    states = ran.states()
    assert states.pop(NODE) == "complete" and {*states.values()} == {"cached"}
    _, after = folders(ran)
    assert pq.read_table(after)["id"].to_pylist() == ["0", "1"]
    (file,) = after.glob("*.parquet")
    file.unlink()
    assert f"{file} is missing" in ran.run().stderr
    assert {*folders(ran)} - {before, after}
    assert len(pq.read_table(folders(ran)[-1])) == 2
    # The span before is known: neither predicted again nor lost.
    count = len(folders(ran))
    ran.run("--set", "predict.spans=2")
    assert (ran.states()[NODE], len(folders(ran))) == ("cached", count)


def test_a_bad_row_fails_the_run_by_line_and_leaves_no_predictions(ran):
    before = folders(ran)
    write(ran, 4, "1", "one")
    done = ran.run(expect=1)
    assert "4.csv: line 3: column `x`: received 'one'" in done.stdout
    assert "blessed: bounds held" in done.stdout
    assert folders(ran) == before
    sets = ("data.on_bad_row=quarantine", "data.max_bad_fraction=0.5")
    ran.run(*(word for each in sets for word in ("--set", each)))
    manifest = json.loads((folders(ran)[-1] / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["rejected"]) == (1, 1)
    write(ran, 4, "1", "2")


def test_a_model_that_is_not_blessed_predicts_nothing(ran):
    before = folders(ran)
    write(ran, 5, "1")
    ran.run("--set", "evaluator.bounds.auc.at_least=0.999", expect=3)
    assert NODE not in ran.states()
    assert folders(ran) == before


@pytest.mark.long
def test_a_pipeline_without_judge_and_target_predicts_with_its_model(ran):
    write(ran, 6, "1", "2", "3")
    settings = yaml.safe_load(ran.yaml.read_text())
    alone = ran.folder / "alone.yaml"
    left = {x: settings[x] for x in settings if x not in ("evaluator", "pusher")}
    alone.write_text(yaml.safe_dump(left))
    ran.strategos("run", str(alone))
    manifest = json.loads((folders(ran)[-1] / "_manifest.json").read_text())
    assert manifest["rows"] == 3 and manifest["model"]["version"] is None


@pytest.mark.long
def test_a_run_is_made_again_without_predicting_its_files_which_may_be_gone(ran):
    write(ran, 8, "1")
    ran.run()
    run, before = ran.last_run()["run_id"], folders(ran)
    (ran.folder / "new").rename(ran.folder / "archived")
    again = ran.folder / "again"
    words = (run, str(ran.yaml), "--to", str(again), "--json")
    done = ran.strategos("reproduce", *words)
    assert json.loads(done.stdout)["equal"]
    (ran.folder / "archived").rename(ran.folder / "new")
    (made,) = (again / "workload").rglob("pipeline.yaml")
    assert "predict" not in yaml.safe_load(made.read_text())
    assert folders(ran) == before


@pytest.mark.long
@pytest.mark.parametrize("runner", ["beam", "tfx"])
def test_other_runners_predict_the_same(ran, runner):
    write(ran, 7, "4", "5")
    ran.run()
    first = folders(ran)[-1]
    known = content(first)
    shutil.rmtree(first)
    if runner == "beam":
        ran.run("--set", "run.runner=beam")
    else:
        ran.run_by_tfx(f"run.root={ran.folder / 'runs-of-tfx'}")
    found = content(folders(ran)[-1])
    if runner == "beam":
        assert found == known
    else:  # which trains, and pushes another version
        assert found["rows"] == known["rows"] and found["model"]["version"]


def test_the_step_on_kubeflow_predicts_with_the_version_that_it_pushed(
    make_small, kfp_launcher, tmp_path
):
    made = make_small(tmp_path / "checkout")
    made.yaml.write_text(made.yaml.read_text() + SECTION)
    write(made, 1, *map(str, range(20)))
    mounted = tmp_path / "mounted"
    overlay, file = tmp_path / "cluster.yaml", tmp_path / "spec.yaml"
    section = {
        **{"image": "x", "context": str(made.folder.parent)},
        "volumes": [{"claim": "out", "path": str(mounted)}],
    }
    settings = {
        "kubeflow": section,
        "pusher": {"to": str(mounted / "serving")},
        "predict": {"to": str(mounted / "scored")},
    }
    overlay.write_text(json.dumps(settings))
    words = ("--target", "kubeflow", "--overlay", str(overlay), "-o", str(file))
    made.strategos("compile", str(made.yaml), *words)
    spec = next(yaml.safe_load_all(file.read_text()))
    place = tmp_path / "cluster"
    launcher = kfp_launcher(spec, place, made.warm, made.folder.parent)
    launcher.run()
    (folder,) = (mounted / "scored").iterdir()
    result = launcher.artifacts[NODE, "inference_result"]["metadata"]
    assert result["predictions"] == str(folder) and result["rows"] == 20
    (uploaded,) = launcher.files(NODE, "inference_result").iterdir()
    assert uploaded.name == "_manifest.json"
    pushed = launcher.artifacts["Pusher", "pushed_model"]["metadata"]
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert str(manifest["model"]["version"]) == pushed["pushed_version"]
    words = (str(made.folder / "new" / "1.csv"), "--output", str(tmp_path / "out"))
    words += ("--columns", "id", "--overlay", str(overlay))
    made.strategos("predict", str(made.yaml), *words)
    (here,) = (tmp_path / "out").glob("*.parquet")
    (there,) = folder.glob("*.parquet")
    assert here.read_bytes() == there.read_bytes()
    launcher.run(NODE)  # as after a lost answer of the step
    assert [*(mounted / "scored").iterdir()] == [folder]

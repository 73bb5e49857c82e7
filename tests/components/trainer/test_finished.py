"""A finished model that was not published; e2e tests kill real runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from strategos.components import exported
from strategos.components.trainer import finished
from strategos.components.trainer.spec import WorkerSpec


def _spec(trainer: Path, execution: int, **changes) -> WorkerSpec:
    spec = WorkerSpec(
        folder="/w",
        module="model",
        label="late",
        train_files=(),
        eval_files=(),
        transform_graph="",
        schema_file="",
        model_dir=str(trainer / "model" / str(execution)),
        log_dir=str(trainer / "model_run" / str(execution)),
        checkpoint_dir=str(trainer / "checkpoints" / "key"),
        batch_size=1,
        epochs=1,
        seed=1,
        distribution={"strategy": "one_device"},
    )
    return dataclasses.replace(spec, **changes)


@pytest.fixture
def trainer(tmp_path):
    """A Trainer's folder with a finished model of execution 4."""
    spec, weights = _spec(tmp_path, 4), tmp_path / "weights"
    serving = Path(spec.model_dir, finished.ASIDE, exported.SERVING_DIR)
    for folder in (serving / "variables", Path(spec.log_dir, "train"), weights):
        folder.mkdir(parents=True)
    (serving / "saved_model.pb").write_text("graph")
    (serving / "variables" / "data").write_text("variables")
    Path(spec.log_dir, "train", "events").write_text("logs")
    (weights / "weights.index").write_text("weights")
    Path(spec.checkpoint_dir, "step-0000000007").mkdir(parents=True)
    finished.publish(spec, str(weights), {"steps": 9})
    return tmp_path


def _files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def test_a_finished_model_is_taken_whole_with_its_logs(trainer):
    spec = _spec(trainer, 9)
    assert finished.take(spec) == {"steps": 9}
    assert _files(spec.model_dir) == _files(trainer / "model" / "4")
    assert set(_files(spec.model_dir)) == {
        "trainer.json",
        "Format-Weights/weights.index",
        "Format-Serving/saved_model.pb",
        "Format-Serving/variables/data",
    }
    assert _files(spec.log_dir) == {"train/events": "logs"}


def test_mark_and_checkpoints_go_with_the_model_that_they_are_of(trainer):
    finished.forget(str(trainer / "model" / "3"))
    assert finished.take(_spec(trainer, 9)) is not None
    finished.forget(str(trainer / "model" / "4"))  # moved from there in the meantime
    assert Path(_spec(trainer, 9).checkpoint_dir).is_dir()
    finished.forget(str(trainer / "model" / "9"))
    assert not Path(_spec(trainer, 9).checkpoint_dir).exists()
    assert finished.take(_spec(trainer, 12)) is None


def test_a_root_that_was_moved_still_has_its_finished_model(trainer, tmp_path_factory):
    moved = trainer.rename(tmp_path_factory.mktemp("other") / "Trainer")
    assert finished.take(_spec(moved, 9)) == {"steps": 9}


@pytest.mark.parametrize(
    "changes",
    [{"distribution": {"strategy": "mirrored"}}, {"warm_start": "/m/Format-Weights"}],
)
def test_a_model_that_was_trained_otherwise_is_not_taken(trainer, changes):
    assert finished.take(_spec(trainer, 9, **changes)) is None
    assert not Path(_spec(trainer, 9).model_dir).exists()


@pytest.mark.parametrize("part", ["trainer.json", "Format-Weights", "Format-Serving"])
def test_a_model_that_is_not_whole_is_not_taken(trainer, part):
    (trainer / "model" / "4" / part).rename(trainer / "gone")
    assert finished.take(_spec(trainer, 9)) is None


@pytest.mark.parametrize("names", [["weights.index"], []])
def test_a_model_in_an_object_store_is_taken(bucket, tmp_path, names):
    stored = _spec(Path("unused"), 4)
    url = f"{bucket}/{len(names)}/Trainer"
    moved = {"checkpoint_dir": f"{url}/checkpoints/key"}
    outputs = {"model_dir": f"{url}/model/4", "log_dir": f"{url}/model_run/4"}
    stored = dataclasses.replace(stored, **moved, **outputs)
    here = finished.with_local_outputs(stored, str(tmp_path))
    serving = Path(here.model_dir, finished.ASIDE, exported.SERVING_DIR)
    for folder in (serving, Path(here.log_dir)):
        folder.mkdir(parents=True)
    (serving / "saved_model.pb").write_text("graph")
    Path(here.log_dir, "history.csv").write_text("epoch")
    for name in names:  # a module with `run_fn` has none
        (tmp_path / name).write_text("weights")
    finished.publish(stored, str(tmp_path), {"steps": 9})
    spec = _spec(tmp_path / "taken", 9, **moved)
    assert finished.take(spec) == {"steps": 9}
    assert _files(spec.model_dir) == {
        "trainer.json": _files(here.model_dir)["trainer.json"],
        "Format-Serving/saved_model.pb": "graph",
        **{f"Format-Weights/{name}": "weights" for name in names},
    }
    assert Path(spec.model_dir, "Format-Weights").is_dir()
    assert _files(spec.log_dir) == {"history.csv": "epoch"}
    other = _spec(tmp_path / "again", 9, warm_start="/other/path", **moved)
    assert finished.take(other) is None
    assert finished.take(other, new=True) == {"steps": 9}

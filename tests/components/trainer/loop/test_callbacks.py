"""Callbacks: configured ones, the user's, and their state across a resume."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.loop import callbacks
from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.phases import Phase
from strategos.components.trainer.spec import Settings


@pytest.fixture
def model():
    made = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def _epoch(callback, model, number, **logs):
    model.set_weights([np.full((1, 1), number), np.full((1,), number)])
    callback.on_epoch_end(number, logs)


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("auto", (0.5, 0.3, 0.4), 1),
        ("max", (0.5, 0.3, 0.6), 2),
        ("min", (float("nan"), 0.3, 0.4), 1),
    ],
)
def test_the_best_epochs_weights_are_the_models_in_the_end(model, mode, values, best):
    asked = {"monitor": "val_loss", "mode": mode}
    judge, callback = callbacks.configured({"best_checkpoint": asked}, "")
    for each in (judge, callback):
        each.set_model(model)
    for number, value in enumerate(values):
        judge.on_epoch_end(number, {"val_loss": value})
        _epoch(callback, model, number, val_loss=value)
    callback.on_train_end()
    assert float(model.get_weights()[0][0, 0]) == best


def test_the_mean_of_the_weights_after_several_epochs_survives_a_resume(model):
    average = callbacks.WeightAverage(2)
    average.set_model(model)
    for number in (1, 2, 4):
        _epoch(average, model, number)
    state = {"count": average.count, "means": average.means}
    resumed = callbacks.WeightAverage(2)
    resumed.set_model(model)
    vars(resumed).update(state)
    _epoch(resumed, model, 8)
    resumed.on_train_end()
    assert float(model.get_weights()[0][0, 0]) == pytest.approx((1 + 2 + 4 + 8) / 4)


def test_epochs_before_the_first_that_counts_are_in_no_mean(model):
    average = callbacks.WeightAverage(3)
    average.set_model(model)
    for number in (1, 2):
        _epoch(average, model, number)
    average.on_train_end()
    assert float(model.get_weights()[0][0, 0]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("configured", "own", "split", "named"),
    [
        ({"best_checkpoint": {"monitor": "val_auc"}}, [], "eval", "best_checkpoint"),
        ({"best_checkpoint": {"monitor": "val_auc"}}, [], "validation", ""),
        ({"early_stopping": {"monitor": "loss"}, "csv": True}, [], "eval", ""),
        ({}, [tf.keras.callbacks.EarlyStopping("loss")], "eval", ""),
        ({}, [tf.keras.callbacks.ModelCheckpoint("a", "val_loss")], "eval", ""),
        (
            {"early_stopping": {"monitor": "val_loss"}},
            [tf.keras.callbacks.ReduceLROnPlateau("val_loss")],
            "eval",
            "early_stopping, ReduceLROnPlateau",
        ),
    ],
)
def test_callbacks_that_choose_on_eval_are_named(
    tmp_path, configured, own, split, named
):
    sink = tmp_path / "events.jsonl"
    sink.touch()
    events.open_sink(str(sink))
    callbacks.warn_of_choices(configured, own, split)
    events.open_sink(None)
    found = [json.loads(line)["message"] for line in sink.read_text().splitlines()]
    assert [line.partition(")")[0] for line in found] == (
        [f"rows of `eval` both choose ({named}"] if named else []
    )


@pytest.mark.parametrize(
    ("stops", "use_ema", "noted"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_early_stopping_of_the_last_phase_is_noted_to_export_no_averages(
    tmp_path, stops, use_ema, noted
):
    sink = tmp_path / "events.jsonl"
    sink.touch()
    events.open_sink(str(sink))
    stopping = {"monitor": "val_loss", "patience": 1} if stops else None
    last = Phase("tune", epochs=2, early_stopping=stopping)
    optimizer = tf.keras.optimizers.Adam(use_ema=use_ema)
    callbacks.note_best_weights({}, optimizer, last)
    events.open_sink(None)
    messages = [json.loads(line)["message"] for line in sink.read_text().splitlines()]
    start = "trainer.phases.tune.early_stopping: the weights of the best epoch"
    assert [each.startswith(start) for each in messages] == [True] * noted


def test_the_history_as_csv_has_all_that_any_epoch_measured(tmp_path):
    history = callbacks.CsvHistory(f"{tmp_path}/logs/history.csv")
    history.on_epoch_end(0, {"loss": 0.5})
    history.on_epoch_end(1, {"loss": 0.25, "val_loss": 1.0})
    text = (tmp_path / "logs" / "history.csv").read_text().split()
    assert text == ["epoch,loss,val_loss", "1,0.5,", "2,0.25,1.0"]


LOGGING = """
import logging
import tensorflow as tf
from model import build_model

logger = logging.getLogger("mine")

class Talking(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logger.info("epoch %d of my own", epoch)

def callbacks(context):
    return [Talking()]
"""


@pytest.fixture(scope="module")
def run(workload, make_spec, tmp_path_factory):
    """A run with all callbacks and logs: spec, facts, events and output."""
    workload.write_module("talking", LOGGING)
    wanted = {
        "tensorboard": {"histograms": 1, "profile": [2, 3]},
        "best_checkpoint": {"monitor": "val_auc"},
        "csv": True,
    }
    spec = make_spec(module="talking", settings=Settings(callbacks=wanted))
    sink = tmp_path_factory.mktemp("events") / "events.jsonl"
    events.open_sink(str(sink), node="Trainer")
    with contextlib.redirect_stderr(io.StringIO()) as log:
        facts = launch(spec, Operation())
    events.open_sink(None)
    lines = sink.read_text().splitlines()
    return spec, facts, list(map(json.loads, lines)), log.getvalue()


@pytest.mark.long
def test_tensorboard_gets_scalars_histograms_and_a_profile(run):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    log_dir = Path(run[0].log_dir)
    events_of_training = event_accumulator.EventAccumulator(
        str(log_dir / "train"), size_guidance={"tensors": 0}
    )
    tags = events_of_training.Reload().Tags()["tensors"]
    assert "epoch_loss" in tags
    assert any("kernel" in tag for tag in tags)
    assert list(log_dir.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.long
def test_tensorboard_gets_all_that_kerass_own_callback_writes(tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    own = str(tmp_path / "own")
    (ours,) = callbacks.configured({"tensorboard": {"histograms": 1}}, own)
    keras_s = tf.keras.callbacks.TensorBoard(
        str(tmp_path / "keras"), histogram_freq=1, profile_batch=0
    )
    found = []
    for board in (ours, keras_s):
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, name="only")])
        model.compile("sgd", "mse", metrics=["mae"])
        rows = tf.reshape(tf.range(12.0) / 12, [12, 1])
        fitted = {"epochs": 2, "batch_size": 4, "verbose": 0, "callbacks": [board]}
        model.fit(rows, rows, validation_data=(rows, rows), **fitted)
        written = {}
        for part in ("train", "validation"):
            path = f"{board.log_dir}/{part}"
            sizes = {"tensors": 0}
            of_part = event_accumulator.EventAccumulator(path, sizes).Reload()
            for tag in of_part.Tags()["tensors"]:
                written[part, tag] = [
                    (each.step, tf.make_ndarray(each.tensor_proto).tolist())
                    for each in of_part.Tensors(tag)
                    if tag != "keras"  # the graph: other names of the same layers
                ]
        found.append(written)
    assert found[0] == found[1]
    assert {"epoch_mae", "keras"} < {tag for _, tag in found[0]}


@pytest.mark.long
def test_progress_tells_epoch_step_metrics_speed_wait_and_time_left(run):
    messages = [event.get("message", "") for event in run[2]]
    assert any("waiting for input" in message for message in messages)
    (last,) = [x for x in messages if "epoch 3/3  step 11/11" in x and "val_auc" in x]
    for words in ("loss 0.", "val_auc 0.", "examples/s"):
        assert words in last
    assert last.endswith(" 0.0 s left")


@pytest.mark.long
def test_the_evaluation_is_that_of_the_best_epoch(run):
    facts = run[1]
    best = max(facts["history"]["val_auc"])
    assert facts["evaluation"]["auc"] == pytest.approx(best, abs=1e-3)


@pytest.mark.long
def test_the_models_summary_and_the_users_log_lines_are_in_the_log(run):
    log = run[3]
    assert "Total params:" in log
    assert "epoch 0 of my own" in log


def test_a_checkpoint_of_another_model_is_rejected_with_the_difference(
    make_spec, model
):
    spec = make_spec()
    store = Checkpoints(spec.checkpoint_dir, keep=2, is_chief=True)
    store.save(3, {"model": model}, {"variables": [["dense/kernel", [9, 9], "f"]]}, {})
    store.finish()
    message = r"is of another model than `build_model`.*dense/kernel f\[9, 9\] there"
    with pytest.raises(UserError, match=message):
        launch(spec, Operation())
    assert not list(Path(spec.model_dir).glob("Format-*"))

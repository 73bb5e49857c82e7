"""How often checkpoints are written."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.components.trainer.loop.checkpoint.cadence import Cadence, Experience
from strategos.components.trainer.operation import Operation


@pytest.mark.parametrize(
    ("text", "cadence"),
    [
        ("30s", Cadence(seconds=30)),
        ("5m", Cadence(seconds=300)),
        ("1h", Cadence(seconds=3600)),
        ("200 steps", Cadence(steps=200)),
        ("1 step", Cadence(steps=1)),
    ],
)
def test_a_cadence_is_a_time_or_a_number_of_steps(text, cadence):
    assert Cadence.of(text) == cadence


@given(st.integers(1, 9), st.integers(0, 20), st.floats(0, 100))
def test_a_checkpoint_is_due_by_steps_or_by_time_never_by_both(every, steps, seconds):
    by_steps, by_time = Cadence(steps=every), Cadence(seconds=every)
    assert by_steps.is_due(steps, seconds) == (by_steps.steps_left(steps) <= 0)
    assert by_time.is_due(steps, seconds) == (seconds >= every)
    assert by_time.steps_left(steps) == math.inf


def test_the_interval_is_chosen_from_saves_and_interruptions():
    undisturbed = Experience(save_seconds=0.5)
    assert undisturbed.interval() == pytest.approx(60)  # √(2 · 0.5 · 3600)
    assert dataclasses.replace(undisturbed, seconds=4 * 3600).interval() == 120
    killed = Experience(seconds=600, interruptions=10, save_seconds=0.3)
    assert killed.interval() == pytest.approx(6)
    assert Cadence.of("auto").after(killed).seconds == pytest.approx(6)
    assert Cadence(seconds=30).after(killed) == Cadence(seconds=30)
    assert Cadence(steps=9).after(killed) == Cadence(steps=9)


def test_a_resumed_training_remembers_its_interruptions():
    before = Experience(seconds=90, interruptions=2, save_seconds=0.2)
    resumed = Experience.interrupted(dataclasses.asdict(before), 1)
    assert resumed == dataclasses.replace(before, interruptions=3)
    assert Experience.interrupted({}, 1).interruptions == 1  # of an earlier version


MODULE = """
import os, signal, time
import tensorflow as tf

def build_model(context):
    features = context.inputs()
    model = tf.keras.Model(features, tf.keras.layers.Dense(1)(features["distance"]))
    model.compile("sgd", "mse")
    return model

class Killed(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.left = iter(range(7))  # of this process: a checkpoint holds no iterator

    def on_train_batch_end(self, batch, logs=None):
        marks = os.environ["MARKS"]
        if len(os.listdir(marks)) == 4:
            return
        time.sleep(0.2)  # a checkpoint is written in less than eight steps
        if next(self.left, None) is None:
            open(f"{marks}/{os.getpid()}", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    return [Killed()]
"""


@pytest.mark.long
def test_a_training_that_is_killed_before_its_interval_is_over_saves_sooner(
    workload, make_spec, train_only, tmp_path, capfd
):
    workload.write_module("killed_early", MODULE)
    spec = make_spec(module="killed_early", batch_size=10, epochs=1)
    operation = Operation(checkpoint_every="auto", max_restarts=2)
    facts = train_only(spec, operation, MARKS=str(tmp_path))
    assert (facts["restarts"], len(list(tmp_path.iterdir()))) == (4, 4)
    resumed = re.findall(r"resuming at step (\d+)", capfd.readouterr().err)
    steps = list(map(int, resumed))
    # Nothing was saved before the first kill; since then each attempt got further.
    assert len(steps) == 3 and steps == sorted({*steps}) and steps[0] > 0


def _lost(interval, save, between, generator):
    """Seconds lost in a simulated day of failures at random times."""
    lost, until, failure = 0.0, 86400.0, generator.exponential(between)
    now, saved = 0.0, 0.0
    while now < until:
        due = saved + interval
        if failure < due + save:  # before the next checkpoint is complete
            lost += failure - saved
            now = saved = failure
            failure += generator.exponential(between)
        else:
            lost += save
            now = saved = due + save
    return lost


@pytest.mark.parametrize(("save", "between"), [(0.05, 60), (0.5, 600), (2, 3600)])
def test_no_other_interval_loses_much_less_time(save, between):
    chosen = Experience(between, 1, save).interval()
    lost = {
        factor: _lost(factor * chosen, save, between, np.random.default_rng(1))
        for factor in (0.25, 0.5, 1, 2, 4)
    }
    assert lost[1] < 1.05 * min(lost.values())
    assert lost[1] < 0.75 * min(lost[0.25], lost[4])

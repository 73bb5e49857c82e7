"""A loop of the user's own on workers that share variables on parameter servers."""

from __future__ import annotations

import os
import re
import signal

import numpy as np
import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.operation import Operation

MODEL = """
import json
import os
import tensorflow as tf

class Script(tf.keras.callbacks.Callback):
    '''Notes the batches of each epoch; kills a task in the second one.'''

    def __init__(self, plan):
        super().__init__()
        self.plan, self.batches, self.epoch = plan, [], 0

    def on_train_batch_end(self, batch, logs=None):
        assert set(logs) == {"loss"} and isinstance(logs["loss"], float)
        self.batches.append(batch)
        mark = self.plan["mark"]
        if self.epoch == 1 and batch == 4 and "kills" in self.plan:
            if not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(self.task(self.plan["kills"]), self.plan.get("by", 9))

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        print("batches", self.batches, "and", *sorted(logs), flush=True)
        self.batches = []

    def task(self, number):
        with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"].values()
        return pids[-sum(map(len, cluster)):][number]

def callbacks(context):
    return [Script(context.hyperparameters)]

def build_model(context):
    inputs = context.inputs()
    hours = tf.keras.layers.Embedding(24, 64, name="hours")(inputs["hour"])
    parts = [tf.keras.layers.Flatten()(hours), inputs["distance"], inputs["temp"] / 10]
    hidden = tf.keras.layers.Dense(8, "relu")(tf.keras.layers.Concatenate()(parts))
    hidden = context.dropout(0.1)(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        tf.keras.optimizers.Adam(2e-2), tf.keras.losses.BinaryCrossentropy(),
        metrics=["accuracy"])
    return model
"""

STEPS = """
def steps_of(context):
    model, strategy = context.model, context.strategy
    losses_of = tf.keras.losses.BinaryCrossentropy(reduction="none")

    def part_of_mean(values):
        replica = tf.distribute.get_replica_context()
        rows = replica.all_reduce("SUM", tf.shape(values)[0])
        return tf.reduce_sum(values) / tf.cast(rows, values.dtype)

    def train(features, label, weight=None):
        with tf.GradientTape() as tape:
            losses = losses_of(label, model(features, training=True), weight)
            loss = part_of_mean(losses)
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}

    def test(features, label):
        chance = model(features, training=False)
        right = tf.cast((chance > 0.5) == (label > 0), tf.float32)
        return {"loss": part_of_mean(losses_of(label, chance)),
                "accuracy": part_of_mean(right[:, 0])}

    def on_replicas(function):
        @tf.function(reduce_retracing=True)
        def step(batch):
            parts = strategy.run(function, args=batch)
            return {name: strategy.reduce("SUM", part, axis=None)
                    for name, part in parts.items()}
        return step

    return on_replicas(train), on_replicas(test)
"""

LOOP = """
def run_fn(context):
    loop, (train_step, test_step) = context.loop, steps_of(context)
    for epoch in loop.epochs():
        loop.train(train_step)
        measured = loop.evaluate(test_step)
        loop.end_epoch(
            **{f"val_{name}": value for name, value in measured.items()},
            updates=context.model.optimizer.iterations.numpy())
        context.model.stop_training = epoch == 3
"""

# As before there was `loop.train`, evaluated in the process that reports.
BY_HAND = """
def run_fn(context):
    loop, (train_step, test_step) = context.loop, steps_of(context)
    for epoch in loop.epochs():
        for batch in loop.steps():
            loop.report(**train_step(batch))
        sums = {"loss": 0.0, "accuracy": 0.0}
        for batch in context.eval_dataset():
            for name, value in test_step(batch).items():
                sums[name] += float(value) * len(batch[1]) / context.eval_rows
        loop.end_epoch(
            **{f"val_{name}": value for name, value in sums.items()},
            updates=context.model.optimizer.iterations.numpy())
        context.model.stop_training = epoch == 3
"""

ONE_DEVICE = {"strategy": "one_device"}
SPLIT = {"kind": "min_size", "min_shard_bytes": 1024, "max_shards": 2}
ONE_WORKER = {
    "strategy": "parameter_server",
    "workers": 1,
    "parameter_servers": 2,
    "parameter_server": {"variable_partitioner": SPLIT},
}
TWO_WORKERS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}
OFTEN = Operation(checkpoint_every="3 steps")
EPOCHS = 5  # of which it takes four
PER_EPOCH = 11
TOLERANCE = 0.05  # of a mean between 0 and 1, for asynchronous workers


@pytest.fixture(scope="module")
def make_spec(workload, spec_of, tmp_path_factory):
    """Makes a spec of this file's model: `make_spec(distribution, module, **plan)`."""
    workload.write_module("looped", MODEL + STEPS + LOOP)
    workload.write_module("by_hand", MODEL + STEPS + BY_HAND)

    def make(distribution, module="looped", *, class_weight=None, **plan):
        mark = str(tmp_path_factory.mktemp("script") / "killed")
        settings = {"settings": _settings(class_weight)} if class_weight else {}
        return spec_of(
            workload,
            module=module,
            label="late",
            batch_size=96,
            epochs=EPOCHS,
            distribution=distribution,
            hyperparameters={"mark": mark, **plan},
            **settings,
        )

    return make


def _settings(class_weight):
    from strategos.components.trainer.spec import Settings

    return Settings(class_weight=class_weight)


@pytest.fixture(scope="module")
def on_one_device(make_spec, train_only):
    """The facts of the loop on one device, step by step, and its weights."""
    spec = make_spec(ONE_DEVICE, "by_hand")
    return train_only(spec), weights_of(spec)


def weights_of(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if x.startswith("model/layer")}


def assert_same(found, weights, expected, expected_weights, tolerance):
    assert found["history"].keys() == expected["history"].keys()
    for name, values in expected["history"].items():
        assert found["history"][name] == pytest.approx(values, abs=tolerance), name
    assert weights.keys() == expected_weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=0, atol=tolerance, err_msg=name
        )


def test_two_workers_take_each_step_once_and_evaluate_each_row(
    make_spec, train_only, on_one_device
):
    found = train_only(make_spec(TWO_WORKERS), EXPORT="measured")
    expected, _ = on_one_device
    updates = [PER_EPOCH * epoch for epoch in (1, 2, 3, 4)]
    assert found["history"]["updates"] == updates == expected["history"]["updates"]
    for name in ("loss", "val_loss", "val_accuracy"):
        values = pytest.approx(expected["history"][name], abs=TOLERANCE)
        assert found["history"][name] == values, name
    for name, value in found["evaluation"].items():  # of the exported weights
        assert found["history"][f"val_{name}"][-1] == pytest.approx(value, abs=1e-6)


@pytest.mark.long
def test_one_device_gives_every_bit_of_the_loop_step_by_step(
    make_spec, train_only, on_one_device
):
    spec = make_spec(ONE_DEVICE)
    found = train_only(spec)
    expected, weights = on_one_device
    assert found["history"]["loss"] == expected["history"]["loss"]
    assert_same(found, weights_of(spec), expected, weights, 1e-6)
    for name, value in weights_of(spec).items():
        np.testing.assert_array_equal(value, weights[name], err_msg=name)


@pytest.mark.long
def test_one_worker_gives_the_digits_of_one_device_though_the_coordinator_is_killed(
    make_spec, train_only, on_one_device, capfd
):
    spec = make_spec(ONE_WORKER, kills=0)
    found = train_only(spec, OFTEN)
    assert found["restarts"] == 1
    assert_same(found, weights_of(spec), *on_one_device, 1e-6)
    log = capfd.readouterr().err
    batches = list(range(PER_EPOCH))
    assert f"batches {batches} and loss updates val_accuracy val_loss" in log
    assert re.search(r"resuming at step 1[25] ", log)


@pytest.mark.long
def test_one_worker_weighs_rows_as_one_device(make_spec, train_only):
    weights = {"1": 3.0}
    specs = [
        make_spec(distribution, class_weight=weights)
        for distribution in (ONE_DEVICE, ONE_WORKER)
    ]
    expected, found = map(train_only, specs)
    assert_same(found, weights_of(specs[1]), expected, weights_of(specs[0]), 1e-6)


ROWS = """
import tensorflow as tf
from looped import build_model

def run_fn(context):
    loop = context.loop
    # Not the counter of an optimizer, though of its name.
    seen = [tf.Variable(0.0, name="iteration"), tf.Variable(0.0)]
    context.model.seen = seen

    @tf.function
    def step(batch):
        rows = tf.cast(tf.shape(batch[1])[0], tf.float32)
        for variable, value in zip(seen, (rows, rows ** 2)):
            variable.assign_add(value)
        return {"rows": rows}

    for _ in loop.epochs():
        before = [float(each) for each in seen]
        loop.train(step)
        rows, squares = [float(x) - y for x, y in zip(seen, before)]
        loop.end_epoch(expected=squares / rows)
"""


@pytest.mark.long
def test_a_mean_of_an_epoch_is_over_the_rows_that_the_workers_took(
    make_spec, workload, train_only
):
    """A worker that is ahead takes the smaller last batch of a pass before its time."""
    workload.write_module("rows", ROWS)
    history = train_only(make_spec(TWO_WORKERS, "rows"))["history"]
    assert history["rows"] == pytest.approx(history["expected"], rel=1e-6)


@pytest.mark.faults
@pytest.mark.parametrize("task", [1, 3], ids=["worker", "server"])
def test_a_loop_goes_on_after_a_killed_task(make_spec, train_only, on_one_device, task):
    spec = make_spec(TWO_WORKERS, kills=task)
    found = train_only(spec, OFTEN)
    assert os.path.exists(spec.hyperparameters["mark"])
    assert found["restarts"] == 1
    expected, _ = on_one_device
    assert found["history"]["updates"] == expected["history"]["updates"]
    for name in ("loss", "val_loss", "val_accuracy"):
        value = pytest.approx(expected["history"][name][-1], abs=TOLERANCE)
        assert found["history"][name][-1] == value, name


@pytest.mark.faults
def test_a_preempted_loop_has_a_checkpoint_saved_first(
    make_spec, train_only, on_one_device
):
    spec = make_spec(ONE_WORKER, kills=0, by=int(signal.SIGTERM))
    rarely = Operation(checkpoint_every="1h", max_restarts=0)
    found = train_only(spec, rarely)
    assert found["restarts"] == 1  # which does not count
    assert_same(found, weights_of(spec), *on_one_device, 1e-6)


WRONG = """
import tensorflow as tf
from looped import build_model, steps_of

def run_fn(context):
    loop, (train_step, test_step) = context.loop, steps_of(context)
    for epoch in loop.epochs():
{body}
        loop.end_epoch()
"""
WRONGS = {
    "fails in the trace": (
        "def step(batch):\n    return {'loss': batch.missing}\nloop.train(step)",
        r"wrong.py:9: AttributeError: 'tuple' object has no attribute 'missing'",
    ),
    "fails in an operation": (
        "def step(batch):\n"
        "    steps = context.model.optimizer.iterations\n"
        "    tf.debugging.assert_less(steps, tf.constant(14, tf.int64), 'too many')\n"
        "    return train_step(batch)\nloop.train(step)",
        r"training fails: .*too many.*\(after step \d+\)",
    ),
    "is not finite": (
        "loop.train(lambda batch: {'loss': train_step(batch)['loss'] / 0})",
        r"The loss is not a finite number at step 1 \(epoch 1, batch 1 of 11\)",
    ),
    "has no names": (
        "loop.train(lambda batch: train_step(batch)['loss'])",
        r"received a .*Tensor; `run_fn`: the step returns no values by name",
    ),
    "by hand": (
        "for batch in loop.steps():\n    loop.report(**train_step(batch))",
        r"`loop.steps\(\)` needs workers that .*\n *Call `loop.train\(step\)`",
    ),
    "evaluates by Keras": (
        "context.model.evaluate(context.eval_dataset())",
        r"`context.model.evaluate` does not read .*\n *Call .* `loop.evaluate\(step\)`",
    ),
    "reports": (
        "loop.report(loss=1.0)",
        r"`loop.report\(…\)` needs workers that .*\n *Call `loop.train\(step\)`",
    ),
    "has an optimizer aside": (
        "aside = tf.keras.optimizers.SGD()\n"
        "weights = context.model.trainable_variables\n"
        "def update(*batch):\n"
        "    aside.apply_gradients([(tf.ones_like(w), w) for w in weights])\n"
        "def step(batch):\n"
        "    context.strategy.run(update, args=batch)\n"
        "    return train_step(batch)\nloop.train(step)",
        r"the step uses an optimizer that is no part of the model.*\n"
        r" *Keep it in an attribute: `context.model.NAME = OPTIMIZER`",
    ),
}


SAMPLES = ("fails in an operation", "by hand", "has an optimizer aside")


@pytest.mark.parametrize(
    "what",
    [pytest.param(x, marks=() if x in SAMPLES else pytest.mark.long) for x in WRONGS],
)
def test_a_wrong_step_fails_with_the_reason(make_spec, workload, train_only, what):
    body, message = WRONGS[what]
    indented = "".join(f"        {line}\n" for line in body.splitlines())
    workload.write_module("wrong", WRONG.format(body=indented.rstrip()))
    with pytest.raises(UserError, match=message):
        train_only(make_spec(TWO_WORKERS, "wrong"))

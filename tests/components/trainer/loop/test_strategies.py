"""The same model under every synchronous strategy, in real processes."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

TWO = {
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "central_storage": {"strategy": "central_storage", "devices": 2},
    "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "workers": 2},
}
GANG = "multi_worker_mirrored"

# Dropout, an embedding (sparse gradients) and a penalty; 1,000 rows in batches of 111
# leave one row for the last batch, which one of two replicas does not get.
CURVE = """
import os, signal
from pathlib import Path
import numpy as np
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    carriers = context.vocabulary_size("carrier") + 1
    embedding = tf.keras.layers.Embedding(carriers, 2)(inputs["carrier"])
    parts = [tf.keras.layers.Flatten()(embedding), inputs["distance"],
             tf.cast(inputs["hour"], tf.float32) / 24]
    hidden = tf.keras.layers.Dense(16, "relu", kernel_regularizer="l2")(
        tf.keras.layers.Concatenate()(parts))
    hidden = context.dropout(0.2, seed=1)(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    average = context.hyperparameters.get("average", {})
    model.compile(tf.keras.optimizers.Adam(1e-2, **average), "binary_crossentropy",
                  metrics=[tf.keras.metrics.AUC(name="auc"), "accuracy"])
    return model

class TerminatedOnce(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.marker = context.hyperparameters.get("marker")
        self.told = context.hyperparameters["told"] if context.is_chief else None
        self.averages = "average" in context.hyperparameters
        self.seen = 0

    def on_epoch_end(self, epoch, logs=None):
        if self.told and self.averages:
            np.save(self.told, self.model.layers[-1].kernel.numpy())

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == 5 and self.told:
            Path(self.told).write_text(str(float(logs["loss"])))
        if self.seen == 13 and self.marker and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGTERM)

def callbacks(context):
    return [TerminatedOnce(context)]
"""

CALLBACKS = {
    "early_stopping": {"monitor": "val_auc", "patience": 1},
    "best_checkpoint": {"monitor": "val_loss"},
    "reduce_learning_rate": {"monitor": "val_loss", "patience": 0, "factor": 0.5},
    "csv": True,
}


@pytest.fixture(scope="module")
def run(workload, make_spec, train_only, tmp_path_factory):
    """Trains under a strategy: `run(distribution, marker=…)` → facts, spec."""
    workload.write_module("curve", CURVE)

    def run(
        distribution,
        settings=None,
        module="curve",
        batch_size=111,
        epochs=4,
        by=train_only,
        **hyperparameters,
    ):
        hyperparameters["told"] = str(tmp_path_factory.mktemp("told") / "loss")
        spec = make_spec(
            module=module,
            batch_size=batch_size,
            epochs=epochs,
            distribution=distribution,
            settings=Settings(**(settings or {"callbacks": CALLBACKS})),
            hyperparameters=hyperparameters,
        )
        return by(spec, Operation()), spec

    return run


@pytest.fixture(scope="module")
def one_device(run):
    return run({"strategy": "one_device"}, by=launch)


@pytest.fixture(scope="module")
def terminated(run, tmp_path_factory):
    """A run of two replicas; one process received SIGTERM in the second epoch.

    `terminated(name)` → facts, spec; the gang of several processes exports, too.
    """

    @functools.cache
    def terminated(name):
        marker = tmp_path_factory.mktemp("marker") / "terminated"
        by = {"by": launch} if name == GANG else {}
        found = run(TWO[name], marker=str(marker), **by)
        assert marker.exists()
        return found

    return terminated


def _weights(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "OBJECT_GRAPH" not in name
    }


@pytest.mark.long
@pytest.mark.parametrize("name", [GANG, *(x for x in TWO if x != GANG)])
def test_two_replicas_terminated_and_resumed_train_as_one_device_undisturbed(
    terminated, one_device, name
):
    facts, spec = terminated(name)
    undisturbed, its_spec = one_device
    assert facts["restarts"] == 1
    assert (facts["strategy"], facts["replicas"]) == (name, 2)
    assert facts["steps"] == undisturbed["steps"]
    assert facts["examples"] == undisturbed["examples"]
    for metric, values in undisturbed["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-5)
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", [GANG, *(x for x in TWO if x != GANG)])
def test_callbacks_see_the_metrics_of_one_device_at_each_batch(
    terminated, one_device, name
):
    told = [spec.hyperparameters["told"] for _, spec in (terminated(name), one_device)]
    loss, expected = (float(Path(path).read_text()) for path in told)
    assert loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_the_final_evaluation_is_exact(terminated, one_device):
    facts, _ = terminated(GANG)
    for metric, value in one_device[0]["evaluation"].items():
        assert facts["evaluation"][metric] == pytest.approx(value, abs=1e-5)


@pytest.mark.long
def test_checkpoints_stay_until_the_model_is_in_ml_metadata(terminated):
    _, spec = terminated(GANG)
    assert Path(spec.checkpoint_dir, "finished.json").is_file()
    assert list(Path(spec.checkpoint_dir).glob("step-*/state.json"))
    assert Path(spec.model_dir, "Format-Serving", "saved_model.pb").is_file()


@pytest.mark.long
@pytest.mark.parametrize("name", [GANG, *(x for x in TWO if x != GANG)])
def test_the_csv_history_goes_on_after_a_resume(terminated, name):
    facts, spec = terminated(name)
    lines = Path(spec.log_dir, "history.csv").read_text().splitlines()
    assert lines[0].startswith("epoch,loss,")
    assert [line.split(",")[0] for line in lines[1:]] == [
        str(epoch + 1) for epoch in range(len(facts["history"]["loss"]))
    ]


def test_one_device_resumes_to_the_last_digit(run, one_device, tmp_path):
    facts, spec = run({"strategy": "one_device"}, marker=str(tmp_path / "terminated"))
    undisturbed, its_spec = one_device
    assert facts["restarts"] == 1
    assert facts["history"] == undisturbed["history"]
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_array_equal(value, theirs[variable])


@pytest.mark.long
def test_weights_are_averaged_once_in_the_end_also_after_a_resume(run, tmp_path):
    how = {"distribution": {"strategy": "one_device"}, "epochs": 2}
    how["settings"] = {"callbacks": {"csv": True}}
    how["average"] = {"use_ema": True, "ema_momentum": 0.9}
    _, undisturbed = run(**how)
    # Once as arguments of the optimizer, once as a setting.
    how |= {"settings": {**how["settings"], "optimizer": {"ema": 0.9}}, "average": {}}
    facts, spec = run(**how, marker=str(tmp_path / "terminated"))
    assert facts["restarts"] == 1
    found, theirs = map(_weights, (spec, undisturbed))
    for variable, value in found.items():
        np.testing.assert_array_equal(value, theirs[variable])
    last = np.load(spec.hyperparameters["told"] + ".npy")
    (averaged,) = (value for value in found.values() if value.shape == last.shape)
    assert 0 < abs(averaged - last).max() < 0.1


NORMALIZED = """
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    hidden = tf.keras.layers.BatchNormalization()(inputs["distance"])
    hidden = context.dropout(0.2)(hidden)
    output = tf.keras.layers.Dense(1, "sigmoid")(hidden)
    model = tf.keras.Model(inputs, output)
    rate = tf.keras.optimizers.schedules.PolynomialDecay(
        0.1, context.steps_per_epoch * context.epochs, 0.0)
    model.compile(tf.keras.optimizers.SGD(rate), "binary_crossentropy",
                  metrics=[tf.keras.metrics.AUC()])
    return model

class LastRate(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        print("rate in the end:", self.model.optimizer.learning_rate.numpy())

def callbacks(context):
    return [LastRate()]
"""


@pytest.mark.long
def test_a_model_whose_last_batch_must_be_left_out_knows_it(run, workload, capfd):
    workload.write_module("normalized", NORMALIZED)
    monitored = {"early_stopping": {"monitor": "val_auc", "patience": 9}}
    settings = {"callbacks": monitored}
    facts, _ = run(TWO["mirrored"], settings, "normalized", batch_size=112, epochs=2)
    assert facts["steps"] == 2 * (1000 // 112)
    output, errors = capfd.readouterr()
    assert "last batch of an epoch is left out: the model has" in errors
    assert "rate in the end: 0.0" in output + errors


@pytest.mark.parametrize(
    ("distribution", "settings"),
    [({"strategy": "one_device"}, {"last_batch": "drop"}), (TWO["mirrored"], {})],
)
def test_an_epoch_without_a_whole_batch_is_rejected(
    make_spec, train_only, workload, distribution, settings
):
    workload.write_module("normalized", NORMALIZED)
    spec = make_spec(
        module="normalized",
        batch_size=1002,
        distribution=distribution,
        settings=Settings(**settings),
    )
    with pytest.raises(UserError, match="received 1,002; the 1,000 rows .* do not"):
        train_only(spec)


@pytest.mark.parametrize(
    ("part", "outside", "message"),
    [
        (
            "model",
            "layer = tf.keras.layers.Dense(1, 'sigmoid'); layer.build((None, 1))",
            r"outside_model.py:11: ValueError: .*kernel:0.*not created in the distrib",
        ),
        (
            "optimizer",
            "optimizer = tf.keras.optimizers.SGD()",
            "a model whose optimizer was made elsewhere",
        ),
    ],
)
def test_variables_made_outside_of_the_strategys_scope_are_rejected(
    run, workload, part, outside, message
):
    workload.write_module(
        f"outside_{part}",
        f"""
        import tensorflow as tf

        layer, optimizer = None, None
        {outside}

        def build_model(context):
            inputs = context.inputs()
            output = (layer or tf.keras.layers.Dense(1, "sigmoid"))(inputs["distance"])
            model = tf.keras.Model(inputs, output)
            model.compile(optimizer or "sgd", "binary_crossentropy")
            return model
        """,
    )
    with pytest.raises(UserError, match=message):
        run(TWO["mirrored"], module=f"outside_{part}")


@pytest.mark.long
def test_reduced_precision_scales_its_loss_and_serves_float32(run, one_device):
    settings = {"mixed_precision": "float16", "callbacks": {}}
    facts, spec = run(TWO["mirrored"], settings, epochs=1, by=launch)
    assert facts["history"]["loss"][0] == pytest.approx(
        one_device[0]["history"]["loss"][0], abs=0.01
    )
    loaded = tf.saved_model.load(f"{spec.model_dir}/Format-Serving")
    answer = loaded.signatures["serving_default"].structured_outputs
    assert answer["predictions"].dtype == tf.float32


@pytest.mark.long
def test_several_steps_per_execution_give_the_same_curve(run, one_device):
    facts, _ = run(
        {"strategy": "one_device"},
        {"steps_per_execution": 4, "callbacks": CALLBACKS},
    )
    for metric, values in one_device[0]["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param("mirrored", 3, marks=pytest.mark.long),
        pytest.param("one_device", 8, marks=pytest.mark.matrix),
        pytest.param(GANG, 4, marks=pytest.mark.matrix),
    ],
)
def test_batches_computed_in_parts_give_the_curve_of_whole_ones(
    run, one_device, name, parts
):
    facts, spec = run(
        TWO.get(name, {"strategy": name}),
        {"accumulate_steps": parts, "callbacks": CALLBACKS},
    )
    undisturbed, its_spec = one_device
    assert facts["steps"] == undisturbed["steps"]
    for metric, values in undisturbed["history"].items():
        np.testing.assert_allclose(facts["history"][metric], values, atol=1e-5)
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-5)


@pytest.mark.long
def test_evaluations_on_the_way_survive_a_resume_and_choose_the_best(run, tmp_path):
    best = {"best_checkpoint": {"monitor": "val_loss"}, "csv": True}
    how = {"distribution": {"strategy": "one_device"}, "epochs": 2}
    how["settings"] = {"evaluate_every": 6, "callbacks": best}
    undisturbed, its_spec = run(**how)
    facts, spec = run(**how, marker=str(tmp_path / "terminated"))
    assert (facts["restarts"], facts["steps"], facts["examples"]) == (1, 20, 2000)
    assert facts["history"] == undisturbed["history"]
    values = facts["history"]["val_loss"]  # after 6, 12, 18 and all of the 20 steps
    assert len(values) == 4
    assert facts["weights_epoch"] == 1 + int(np.argmin(values))
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_array_equal(value, theirs[variable])


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["one_device", *TWO])
def test_evaluations_on_the_way_measure_what_those_of_epochs_do(run, name):
    how = {"distribution": TWO.get(name, {"strategy": name}), "epochs": 2}
    plain, its_spec = run(**how, settings={"callbacks": {}})
    often, spec = run(**how, settings={"callbacks": {}, "evaluate_every": 5})
    for metric in ("val_loss", "val_auc", "val_accuracy"):
        np.testing.assert_allclose(
            often["history"][metric][1::2], plain["history"][metric], atol=1e-6
        )
    theirs = _weights(its_spec)
    for variable, value in _weights(spec).items():
        np.testing.assert_allclose(value, theirs[variable], atol=1e-6)


def test_running_out_of_memory_names_batch_type_and_remedies(run, workload):
    workload.write_module(
        "huge",
        """
        import tensorflow as tf

        class Huge(tf.keras.layers.Layer):
            def call(self, inputs, training=None):
                if not training:
                    return inputs
                much = tf.random.uniform([1 << 24, 1 << 24, tf.shape(inputs)[0]])
                return inputs + tf.reduce_max(much)

        def build_model(context):
            inputs = context.inputs()
            output = tf.keras.layers.Dense(1, "sigmoid")(Huge()(inputs["distance"]))
            model = tf.keras.Model(inputs, output)
            model.compile("sgd", "binary_crossentropy")
            return model
        """,
    )
    message = (
        r"out of memory with 111 rows per replica .*float32: OOM.*\n +Use a smaller"
    )
    with pytest.raises(UserError, match=message):
        run({"strategy": "one_device"}, module="huge")


def test_the_facts_lie_beside_the_model(one_device):
    facts, spec = one_device
    assert json.loads(Path(spec.model_dir, "trainer.json").read_text()) == facts


@pytest.mark.long
def test_the_best_epochs_weights_are_exported_not_averages(run, tmp_path):
    sink = tmp_path / "events.jsonl"
    events.open_sink(str(sink), node="Trainer")
    facts, _ = run(
        {"strategy": "one_device"},
        {"callbacks": {"best_checkpoint": {"monitor": "val_loss"}}},
        epochs=3,
        by=launch,
        average={"use_ema": True, "ema_momentum": 0.9},
    )
    events.open_sink(None)
    best = min(facts["history"]["val_loss"])
    assert facts["evaluation"]["loss"] == pytest.approx(best, abs=1e-6)
    notes = [json.loads(line).get("message", "") for line in sink.open()]
    (note,) = [each for each in notes if "use_ema" in each]
    assert "best_checkpoint: the weights of the best epoch are exported" in note

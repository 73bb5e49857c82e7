"""A custom training loop: the documented example, under every strategy."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers import local
from strategos.components.trainer.loop.custom_loop import EpochMeans
from strategos.components.trainer.operation import Operation

EPOCHS = 2
STRATEGIES = {
    "one_device": {"strategy": "one_device"},
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "multi_worker": {"strategy": "multi_worker_mirrored", "workers": 2},
    "central_storage": {"strategy": "central_storage", "devices": 2},
    "servers": {"strategy": "parameter_server", "workers": 1, "parameter_servers": 2},
}
ALONE = ("one_device", "servers")  # a step is taken by one replica


@pytest.fixture(scope="module")
def train(digits, spec_of, train_only):
    """Trains digits: `train(module, strategy, **operation)`."""

    def launch(
        module,
        strategy="one_device",
        by=train_only,
        epochs=EPOCHS,
        dies=None,
        **operation,
    ):
        spec = spec_of(
            digits,
            module=module,
            label="label",
            batch_size=32,
            epochs=epochs,
            seed=7,
            hyperparameters={"network": "mlp", "learning_rate": 2e-3, "dies": dies},
            distribution=STRATEGIES[strategy],
        )
        return spec, by(spec, Operation(**operation))

    return launch


@pytest.fixture(scope="module")
def fitted(train):
    """The result of `fit` for the same model on one device."""
    return train("model")[1]


@pytest.fixture(scope="module")
def on_one_device(train):
    """Spec and facts of the example on one device, undisturbed."""
    return train("custom_loop", by=local.launch)


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_example_gives_the_curve_of_fit_under_any_strategy(
    fitted, on_one_device, train, strategy
):
    is_known = strategy == "one_device"
    _, facts = on_one_device if is_known else train("custom_loop", strategy)
    assert facts["replicas"] == (1 if strategy in ALONE else 2)
    assert set(facts["history"]) == {"loss", "val_accuracy"}
    for name, values in facts["history"].items():
        assert values == pytest.approx(fitted["history"][name], abs=1e-5), name
    for name in ("steps", "examples", "rows"):
        assert facts[name] == fitted[name]


def test_what_it_trained_is_evaluated_and_exported_as_that_of_fit(
    fitted, on_one_device
):
    spec, facts = on_one_device
    last = {name: values[-1] for name, values in fitted["history"].items()}
    assert set(facts["evaluation"]) == {"loss", "accuracy"}
    for name, value in facts["evaluation"].items():
        assert value == pytest.approx(last[f"val_{name}"], abs=1e-5), name
    assert (Path(spec.model_dir) / "Format-Serving" / "saved_model.pb").exists()


DYING = """
import os
import signal
import custom_loop
from custom_loop import build_model
import tensorflow as tf

class Dies(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.step, self.marker = context.hyperparameters["dies"]

    def on_train_batch_end(self, batch, logs=None):
        self.model.seen[0].assign_add(1)
        now = self.model.optimizer.iterations == self.step
        if now and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks(context):
    return [Dies(context)]

def run_fn(context):
    context.model.seen = [tf.Variable(0, trainable=False)]  # as the docs say
    custom_loop.run_fn(context)
    if context.is_chief:
        with open(context.hyperparameters["dies"][1], "w") as file:
            file.write(str(int(context.model.seen[0].numpy())))
"""


@pytest.mark.parametrize(
    ("strategy", "step"),
    [
        pytest.param("one_device", 60, marks=pytest.mark.long),
        pytest.param("mirrored", 88, marks=pytest.mark.long),
        pytest.param("multi_worker", 90, marks=pytest.mark.long),
    ],
)
def test_a_killed_loop_goes_on_from_its_checkpoint_as_one_device_undisturbed(
    on_one_device, train, train_only, digits, tmp_path, strategy, step
):
    digits.write_module("dying_loop", DYING)
    dies = [step, str(tmp_path / "died")]
    by = local.launch if strategy == "one_device" else train_only
    spec, facts = train(
        "dying_loop", strategy, by, dies=dies, checkpoint_every="25 steps"
    )
    its_spec, undisturbed = on_one_device
    assert facts["restarts"] == 1
    assert (tmp_path / "died").read_text() == str(facts["steps"])
    tolerance = 0 if strategy == "one_device" else 1e-5
    for name, values in undisturbed["history"].items():
        assert facts["history"][name] == pytest.approx(values, abs=tolerance), name
    theirs, ours = weights_of(its_spec), weights_of(spec)
    assert ours.pop("model/seen/0/.ATTRIBUTES/VARIABLE_VALUE") == facts["steps"]
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], atol=tolerance, err_msg=name)


def weights_of(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


STOPPING = """
import json
import custom_loop
from custom_loop import build_model

def run_fn(context):
    for epoch in context.loop.epochs():
        for batch in context.loop.steps():
            context.loop.report(loss=1.0)
        line = context.loop.end_epoch(val_accuracy=0.5)
        print(json.dumps(line))
        context.model.stop_training = epoch == 1
"""


def test_it_may_stop_early(train, digits, capfd):
    digits.write_module("stopping_loop", STOPPING)
    _, facts = train("stopping_loop", epochs=3)
    assert facts["history"] == {"loss": [1.0] * 2, "val_accuracy": [0.5] * 2}
    assert json.dumps({"loss": 1.0, "val_accuracy": 0.5}) in capfd.readouterr().err


def test_a_value_that_only_some_steps_report_is_a_mean_over_their_rows():
    means = EpochMeans()
    means.add(4, {"loss": 1.0})
    means.add(4, {"loss": 2.0, "norm": 5.0})
    means.add(4, {"loss": 3.0})
    assert means.add(2, {"loss": 2.0, "norm": 2.0}) == {"loss": 2.0, "norm": 4.0}
    assert means.take() == {"loss": 2.0, "norm": 4.0}
    assert means.add(1, {"norm": 3.0}) == {"norm": 3.0}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def run_fn(context): pass",
            r"wrong_loop.py: has `run_fn\(context\)`, but no function `build_model`",
        ),
        (
            "from model import build_model\ndef run_fn(context, more): pass",
            r"`run_fn` takes \(context, more\)\n +Allowed: `run_fn\(context\)`",
        ),
        (
            "from model import build_model\ndef run_fn(context): pass",
            r"`run_fn` returned after step 0 of 90. Go through all of",
        ),
        (
            """
            from model import build_model
            def run_fn(context):
                for epoch in context.loop.epochs():
                    for batch in context.loop.steps():
                        pass
            """,
            r"each batch .* needs one `loop.report\(loss=…\)`; after step 1 .* were 0",
        ),
        (
            """
            from model import build_model
            def run_fn(context):
                for epoch in context.loop.epochs():
                    for batch in context.loop.steps():
                        context.loop.report(loss=1.0)
            """,
            r"epoch 1 ended at step 45 without `loop.end_epoch",
        ),
        (
            """
            from model import build_model
            def run_fn(context):
                step = lambda batch: {"loss": 1.0}
                for epoch in context.loop.epochs():
                    context.loop.train(step)
                    context.loop.train(step)
                    context.loop.end_epoch()
            """,
            r"steps after all batches of epoch 1\n +Call `loop.train\(step\)`.*once",
        ),
        (
            """
            from model import build_model
            def run_fn(context):
                context.loop.train(lambda batch: {"loss": 1.0})
            """,
            r"takes steps outside of an epoch\n.*inside of `for epoch in",
        ),
        (
            """
            from model import build_model
            def run_fn(context):
                context.strategie
            """,
            r"training fails: .*wrong_loop.py:\d+: AttributeError: .*strategie",
        ),
        *(
            (
                f"""
                from model import build_model
                def run_fn(context):
                    for epoch in context.loop.epochs():
                        context.loop.{call}
                """,
                message,
            )
            for call, message in [
                ("train(lambda batch: 1.0)", "received a float; .* no values by name"),
                ("train(lambda batch: None)", "received None; .* no values by name"),
                ("evaluate(lambda batch: None)", "received None; .* no values"),
                (
                    "train(lambda batch: {'loss': batch[1]})",
                    r"returns `loss` of the shape \(32, 1\)\n +Allowed: a scalar",
                ),
            ]
        ),
    ],
)
def test_a_wrong_loop_fails_with_the_reason(train, digits, source, message):
    digits.write_module("wrong_loop", source)
    sys.modules.pop("wrong_loop", None)
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=message):
        train("wrong_loop", by=in_this_process)


def in_this_process(spec, operation):
    from strategos.components.trainer.run import session

    return session.train(spec, operation, ClusterSpec(), f"{spec.model_dir}/weights")


@pytest.mark.long
def test_a_value_of_each_replica_is_rejected(train, digits):
    source = """
    import tensorflow as tf
    from model import build_model
    def run_fn(context):
        def rows(features, label):
            return tf.shape(label)[0]
        for epoch in context.loop.epochs():
            context.loop.train(
                lambda batch: {"rows": context.strategy.run(rows, args=batch)})
    """
    digits.write_module("each_loop", source)
    with pytest.raises(UserError, match="returns `rows` of each replica\n.*one scalar"):
        train("each_loop", "mirrored")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluate_every": 5}, "evaluate_every: .* evaluates itself"),
        ({"accumulate_steps": 2}, "accumulate_steps: .* the steps of `run_fn`"),
        ({"optimizer": {"ema": 0.9}}, r"optimizer\.ema: .*`fit` sets the averages"),
        ({"phases": ({"name": "a", "epochs": 1},)}, "phases: .* which layers train"),
        ({"jit_compile": True}, "jit_compile: .* no effect on the steps"),
        ({"steps_per_execution": 2}, "execution: .* no effect on the steps"),
    ],
)
def test_settings_that_only_fit_follows_are_rejected_for_an_own_loop(
    train, settings, message
):
    def changed(spec, operation):
        own = dataclasses.replace(spec.settings, **settings)
        return in_this_process(dataclasses.replace(spec, settings=own), operation)

    with pytest.raises(UserError, match=message):
        train("custom_loop", by=changed)

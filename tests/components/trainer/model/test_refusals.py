"""A workload that cannot be trained is rejected with one clear message."""

from __future__ import annotations

import importlib
import sys

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        (
            "def build_model(context):\n    return context.hyperparameters['unit']\n",
            {},
            r"`build_model` fails: .*/broken.py:2: .*`unit` is not in trainer.hyperp",
        ),
        (
            "def build_model(context):\n    return context.vocab_size('carrier')\n",
            {},
            r"no attribute 'vocab_size'\. Did you mean `vocabulary_size`\?",
        ),
        (
            "from tensorflow import keras\n"
            "def build_model(context):\n    keras.Sequential().compile('adamm')\n",
            {},
            r"broken.py:3: .* Unknown optimizer: 'adamm'\. Did you mean `Adam`\?",
        ),
        (
            "import keras\n"
            "def build_model(context):\n    keras.layers.Dense(1, 'rellu')\n",
            {},
            r"broken.py:3: .*function identifier: rellu\. Did you mean `relu`\?",
        ),
        (
            "def build_model(context):\n    raise SystemExit(3)\n",
            {},
            r"`build_model` fails: .*/broken.py:2: SystemExit: 3",
        ),
        (
            "def build_models(context):\n    pass\n",
            {},
            r"broken.py: has no function `build_model`. Functions found: build_models",
        ),
        (
            "def build_model(context):\n    return context.vocabulary_size('dest')\n",
            {},
            r"no vocabulary `dest`. Transform wrote: carrier",
        ),
        (
            "def build_model(context):\n    pass\n",
            {"label": "delay"},
            r"label: received `delay`; `preprocessing_fn` returns.*\n.*Allowed: .*late",
        ),
        (
            "def build_model(context):\n    pass\n",
            {"distribution": {"strategy": "magic"}},
            r"distribution.strategy: received 'magic'\n    Allowed: auto, one_device",
        ),
    ],
)
def test_bad_input_is_one_clear_message(workload, make_spec, source, changes, message):
    from strategos.components.trainer.run import session

    workload.write_module("broken", source)
    _forget("broken")
    spec = make_spec(module="broken", **changes)
    with pytest.raises(UserError, match=message):
        session.train(spec, Operation(), ClusterSpec(), "unused")


def _forget(module):
    sys.modules.pop(module, None)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("loss", "callbacks", "message"),
    [
        (
            "lambda y, p: tf.reduce_mean(p) * float('nan')",
            {},
            r"not a finite number at step 1 \(epoch 1, batch 1 of 11\).*learning rate",
        ),
        (
            "'mse'",
            {"early_stopping": {"monitor": "val_auk", "patience": 1}},
            r"early_stopping.monitor: received 'val_auk'.*\n.*Allowed: loss, val_loss",
        ),
    ],
)
def test_training_that_cannot_continue_fails_with_the_reason(
    workload, make_spec, loss, callbacks, message
):
    from strategos.components.trainer.run import session

    workload.write_module(
        "broken",
        f"""
        import tensorflow as tf

        def build_model(context):
            inputs = context.inputs()
            output = tf.keras.layers.Dense(1)(inputs["distance"])
            model = tf.keras.Model(inputs, output)
            model.compile("sgd", {loss})
            return model
        """,
    )
    _forget("broken")
    spec = make_spec(module="broken", settings=Settings(callbacks=callbacks))
    with pytest.raises(UserError, match=message):
        session.train(spec, Operation(), ClusterSpec(), "unused")


def test_callback_of_another_kind_is_rejected(workload, make_spec):
    from strategos.components.trainer.model.user_module import UserModule

    workload.write_module(
        "broken",
        """
        def build_model(context):
            pass

        def callbacks(context):
            return ["early"]
        """,
    )
    _forget("broken")
    module = UserModule(make_spec(module="broken"))
    message = r"broken.py: `callbacks` returned a str\n    Allowed: a list"
    with pytest.raises(UserError, match=message):
        module.callbacks(None)


@pytest.mark.parametrize(
    ("value", "received"),
    [("[1.0, 2.0]", r"the shape \(2,\)"), ("'much'", "b'much'")],
)
def test_a_step_that_measures_no_number_is_named(workload, make_spec, value, received):
    from strategos.components.trainer.run import session

    workload.write_module(
        "broken",
        f"""
        import tensorflow as tf

        class Own(tf.keras.Model):
            def train_step(self, data):
                return {{**super().train_step(data), "size": tf.constant({value})}}

        def build_model(context):
            inputs = context.inputs()
            output = tf.keras.layers.Dense(1)(inputs["distance"])
            model = Own(inputs, output)
            model.compile("sgd", "mse")
            return model
        """,
    )
    _forget("broken")
    message = f"received {received}; .*`size`, which is not a number"
    with pytest.raises(UserError, match=message):
        session.train(make_spec(module="broken"), Operation(), ClusterSpec(), "unused")


@pytest.mark.parametrize(
    ("package", "strategy", "place"),
    [("keras", "one_device", ""), ("tf_keras", "parameter_server", " under parameter")],
)
@pytest.mark.parametrize("name", ["make_train_function", "make_test_function"])
def test_functions_around_the_steps_that_are_not_called_are_rejected(
    package, strategy, place, name
):
    from strategos.components.targets.label import Label
    from strategos.components.trainer.model.model_checks import ModelChecker

    keras = importlib.import_module(package)
    own = {name: lambda self, force=False: None}
    model = type("Own", (keras.Sequential,), own)([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    checker = ModelChecker("model.py: `build_model`", "", Label.of("late"), strategy)
    with pytest.raises(UserError, match=f"overrides `{name}`.*not called{place}"):
        checker.check_kind(model)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_callback_that_restores_weights_after_a_restart_is_rejected(
    workload, make_spec, package
):
    from strategos.components.trainer.model.user_module import UserModule

    workload.write_module(
        "broken",
        f"""
        import {package} as keras

        def build_model(context):
            pass

        def callbacks(context):
            return [keras.callbacks.BackupAndRestore("backup")]
        """,
    )
    _forget("broken")
    module = UserModule(make_spec(module="broken"))
    with pytest.raises(UserError, match=r"returned a BackupAndRestore(.|\n)*Remove it"):
        module.callbacks(None)


def test_a_feature_made_of_the_label_is_rejected_at_export(
    new_workload, transform, make_spec
):
    from strategos.components.trainer.model import workload as loaded
    from strategos.components.trainer.model.user_module import UserModule
    from strategos.components.trainer.run.export import export

    workload = new_workload()
    workload.write_module(
        "leaky",
        """
        def preprocessing_fn(inputs):
            late = inputs["late"]
            return {"guess": late + 1, "distance": inputs["distance"], "late": late}
        """,
    )
    workload.write_module(
        "leaky_model",
        """
        import tensorflow as tf

        def build_model(context):
            inputs = context.inputs()
            hidden = tf.cast(inputs["guess"], tf.float32) + inputs["distance"]
            model = tf.keras.Model(inputs, hidden)
            model.compile("sgd", "mse")
            return model
        """,
    )
    transform(workload, "leaky")
    spec = make_spec(
        folder=workload.folder, module="leaky_model", transform_graph=workload.graph
    )
    context = loaded.context(spec, 50, 1)
    model = UserModule(spec).build_model(context)
    with pytest.raises(UserError, match="computes guess from the label `late`"):
        export(model, context, workload.schema, str(workload.root / "out"))


@pytest.mark.parametrize(
    ("package", "train"),
    [("tf_keras", True), ("keras", True), ("tf_keras", False)],
)
def test_weights_that_are_nan_are_found_though_the_loss_is_finite(
    workload, make_spec, tmp_path, package, train
):
    """The gradient of the fraction is NaN where the other value is taken."""
    from strategos.components.trainer.run import session

    layer = "layers.Dense(1)" if train else "layers.BatchNormalization()"
    workload.write_module(
        "divided",
        f"""
        import tensorflow as tf
        import {package} as keras
        layers = keras.layers

        class Fraction(layers.Layer):
            def call(self, x):
                return tf.where(x > 1e9, x / (0 * x), 0.0)

            def compute_output_shape(self, shape):
                return shape

        def build_model(context):
            value = context.inputs(keras)["distance"]
            model = keras.Model({{"distance": value}}, Fraction()({layer}(value)))
            model.compile("sgd", "mse")
            return model
        """,
    )
    _forget("divided")
    with pytest.raises(
        UserError,
        match=r"weights `\S*(kernel|gamma)` are not finite numbers after step 11, "
        r"though the loss is\. All features and labels of these 11 steps are finite\. ",
    ):
        session.train(
            *(make_spec(module="divided"), Operation(), ClusterSpec()),
            str(tmp_path / "weights"),
        )

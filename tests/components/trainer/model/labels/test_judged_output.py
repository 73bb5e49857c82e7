"""What the Evaluator could not judge is rejected before the first step."""

from __future__ import annotations

from pathlib import Path

import keras
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import local
from strategos.components.trainer.model.labels import judged_output
from strategos.components.trainer.operation import Operation

MODULE = """
import tensorflow as tf

def build_model(context):
    hour = tf.keras.Input((1,), name="hour")
    both = tf.keras.layers.Dense(2, "softmax")(hour)
    model = tf.keras.Model({"hour": hour}, both)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
"""


@pytest.fixture(params=[tf.keras, keras], ids=["tf.keras", "keras"])
def made(request):
    """A model and its outputs: `made(units, …)`, several by name."""
    package = request.param

    def make(*units, **named):
        x = package.Input((4,), name="x")
        dense = [package.layers.Dense(n)(x) for n in units]
        by_name = {k: package.layers.Dense(n, name=k)(x) for k, n in named.items()}
        model = package.Model(x, by_name or (dense if len(dense) > 1 else dense[0]))
        return model, model(tf.ones((5, 4)))

    return make


def check(made, task):
    judged_output.check(*made, task, "model.py: `build_model`")


@pytest.mark.parametrize(
    ("units", "task"),
    [(1, "binary"), (1, "regression"), (3, "multi_class"), (2, "multi_label"), (2, "")],
)
def test_what_the_task_judges_is_trained(made, units, task):
    check(made(units), task)
    check(made(predictions=units, aux=7), task)


@pytest.mark.parametrize(
    ("units", "task", "remedy"),
    [
        (2, "binary", "set `evaluator.task: multi_class`"),
        (1, "multi_class", "set `evaluator.task: binary`"),
        (2, "regression", "End the model with one unit"),
    ],
)
def test_other_numbers_a_row_than_the_task_judges_are_rejected(
    made, units, task, remedy
):
    for each in (made(units), made(predictions=units, aux=1)):
        with pytest.raises(UserError, match=rf"answers with {units} number.*{remedy}"):
            check(each, task)


def test_one_of_several_outputs_must_be_named(made):
    with pytest.raises(UserError, match="outputs `?aux`? and `?prob`?, and the Eval"):
        check(made(prob=1, aux=3), "binary")
    with pytest.raises(UserError, match="Name that one `predictions`"):
        check(made(1, 3), "binary")


@pytest.mark.long
def test_no_step_is_taken_first(workload, make_spec):
    Path(workload.folder, "both.py").write_text(MODULE)
    spec = make_spec(module="both", distribution={"strategy": "one_device"})
    with pytest.raises(UserError, match="both.py: `build_model`: answers with 2 num"):
        local.launch(spec, Operation(judged_as="binary"))
    assert not list(Path(spec.checkpoint_dir).glob("**/*.index"))
    local.launch(spec, Operation())

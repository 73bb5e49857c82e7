"""A training whose export fails is not lost."""

from __future__ import annotations

import dataclasses

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer import finished
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

pytestmark = pytest.mark.long

# The first call after a training is that of its export, or of a late rehearsal, which
# has little priority.
MODULE = """
import os
from pathlib import Path
import tensorflow as tf
import model

def build_model(context):
    marks = Path(context.hyperparameters["marks"])
    is_export = os.nice(0) < 15 and (marks / "trained-1").exists()
    if is_export and not (marks / "failed").exists():
        (marks / "failed").touch()
        import a_package_that_is_missing
    return model.build_model(context)

class Marks(tf.keras.callbacks.Callback):
    def __init__(self, marks):
        super().__init__()
        self.marks = marks

    def on_train_end(self, logs=None):
        (self.marks / f"trained-{len(list(self.marks.iterdir())) + 1}").touch()

def callbacks(context):
    return [Marks(Path(context.hyperparameters["marks"]))]
"""


def test_after_a_failed_export_the_next_run_only_exports_or_starts_from_the_weights(
    workload, make_spec, tmp_path
):
    workload.write_module("kept", MODULE)
    given = {"units": [16], "marks": str(tmp_path)}
    spec, later, changed = (
        make_spec(module="kept", hyperparameters=given) for _ in range(3)
    )
    kept = f"{spec.checkpoint_dir}/{finished.TRAINED}"
    advice = f"next run only exports.*--set trainer.warm_start={kept}$"
    with pytest.raises(UserError, match=f"(?s)a_package_that_is_missing.*{advice}"):
        launch(spec, Operation())
    later = dataclasses.replace(later, checkpoint_dir=spec.checkpoint_dir)
    facts = launch(later, Operation())
    assert {path.name for path in tmp_path.iterdir()} == {"trained-1", "failed"}
    last = {name: facts["history"][f"val_{name}"][-1] for name in facts["evaluation"]}
    assert facts["evaluation"] == pytest.approx(last, abs=1e-5)
    weights = f"{kept}/Format-Weights"
    warm = launch(dataclasses.replace(changed, warm_start=weights), Operation())
    assert warm["history"]["loss"][0] < min(facts["history"]["loss"][:-1])

"""A workload of a few hundred rows, for tests that run it many times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_YAML = """\
name: small
label: late
data: {examples: "data/span-{SPAN}/*.csv"}
schema: {file: ../schema.pbtxt}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 1}
evaluator:
  task: binary
  metrics: [auc]
  bounds: {auc: {at_least: 0.01, may_drop: 1.0}}
pusher: {to: serving/small}
"""
_REQUIRED = "presence { min_fraction: 1 } shape { dim { size: 1 } }"
_SCHEMA = f"""\
feature {{ name: "x" type: FLOAT {_REQUIRED} }}
feature {{ name: "late" type: INT {_REQUIRED} }}
"""
_PREPROCESSING = """\
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    return {"x": tft.scale_to_z_score(inputs["x"]), "late": inputs["late"]}
"""
_MODEL = """\
import tensorflow as tf


def build_model(context):
    x = tf.keras.Input((1,), name="x")
    model = tf.keras.Model([x], tf.keras.layers.Dense(1, "sigmoid")(x))
    model.compile("sgd", "binary_crossentropy")
    return model
"""


def _write_span(workload: Path, span: int, rows: int = 200) -> Path:
    lines = (f"{(n * 37 + span) % 101},{n % 2}" for n in range(rows))
    file = workload / "data" / f"span-{span}" / "rows.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["x,late", *lines]) + "\n")
    return file


@pytest.fixture(scope="session")
def write_span() -> Callable[..., Path]:
    """Writes a span of data: `write_span(folder of the workload, number)`."""
    return _write_span


@pytest.fixture(scope="session")
def make_small(make_workspace):
    """Makes a workspace of the small workload in `checkout/small`, with two spans."""

    def make(checkout: Path, *settings: str):
        folder = checkout / "small"
        folder.mkdir(parents=True)
        (checkout / "schema.pbtxt").write_text(_SCHEMA)
        (folder / "pipeline.yaml").write_text(_YAML)
        (folder / "preprocessing.py").write_text(_PREPROCESSING)
        (folder / "model.py").write_text(_MODEL)
        for span in (1, 2):
            _write_span(folder, span)
        return make_workspace(folder, settings)

    return make


@pytest.fixture(scope="module")
def small(make_small, tmp_path_factory):
    """A workspace that the tests of a module share, in their order."""
    return make_small(tmp_path_factory.mktemp("checkout"))

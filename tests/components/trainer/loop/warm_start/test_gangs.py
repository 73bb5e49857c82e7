"""A warm start with another vocabulary under each strategy, in real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation

pytestmark = pytest.mark.long

# A table is on two parameter servers from 16 bytes on.
STRATEGIES = {
    "one_device": {},
    "mirrored": {"devices": 2},
    "central_storage": {"devices": 2},
    "multi_worker_mirrored": {"workers": 2},
    "parameter_server": {
        "workers": 1,
        "parameter_servers": 2,
        "parameter_server": {
            "variable_partitioner": {"kind": "min_size", "min_shard_bytes": 16}
        },
    },
}

MODEL = """
import tensorflow as tf

def build_model(context):
    inputs = {n: x for n, x in context.inputs().items() if n in ("carrier", "distance")}
    rows = context.vocabulary_size("carrier") + 1
    embedded = tf.keras.layers.Embedding(rows, 3, name="table")(inputs["carrier"])
    parts = [tf.keras.layers.Flatten()(embedded), inputs["distance"]]
    hidden = tf.keras.layers.Concatenate()(parts)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(tf.keras.optimizers.SGD(context.hyperparameters["rate"]),
                  "binary_crossentropy")
    return model
"""


@pytest.fixture(scope="module")
def first(workload, make_spec):
    """A published model; its spec."""
    workload.write_module("with_table", MODEL)
    spec = make_spec(
        module="with_table", epochs=1, batch_size=100, hyperparameters={"rate": 0.5}
    )
    local.launch(spec, Operation())
    return spec


@pytest.fixture(scope="module")
def grown(workload, tmp_path_factory):
    """The transform graph with an entry more, and all in another order."""
    graph = tmp_path_factory.mktemp("grown") / "graph"
    shutil.copytree(workload.graph, graph)
    file = graph / "transform_fn" / "assets" / "carrier"
    entries = file.read_text().splitlines()
    file.write_text("".join(f"{x}\n" for x in [entries[-1], "ZZ", *entries[:-1]]))
    return str(graph)


def _table(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    shapes = reader.get_variable_to_shape_map()
    (key,) = [name for name, shape in shapes.items() if shape[1:] == [3]]
    return reader.get_tensor(key)


def _entries(graph):
    return Path(graph, "transform_fn/assets/carrier").read_text().splitlines()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_move_with_their_entries(first, grown, make_spec, train_only, strategy):
    spec = make_spec(
        module="with_table",
        epochs=1,
        batch_size=100,
        hyperparameters={"rate": 0.0},
        transform_graph=grown,
        warm_start=f"{first.model_dir}/Format-Weights",
        distribution={"strategy": strategy, **STRATEGIES[strategy]},
    )
    train_only(spec)
    old, new = _table(first), _table(spec)
    before, after = _entries(first.transform_graph), _entries(grown)
    assert len(new) == len(old) + 1 == len(after) + 1
    for entry in before:
        np.testing.assert_array_equal(new[after.index(entry)], old[before.index(entry)])
    np.testing.assert_array_equal(new[-1], old[-1])  # of unknown keys
    assert not (new[after.index("ZZ")] == old).all(1).any()

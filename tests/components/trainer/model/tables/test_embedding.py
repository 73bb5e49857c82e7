"""`context.embedding`: a row for each id, bound to its feature."""

from __future__ import annotations

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.warm_start import earlier_weights
from strategos.components.trainer.model import workload as loaded
from strategos.components.trainer.model.tables import record, relations
from strategos.components.trainer.model.tables.relations import Relation


@pytest.fixture
def context_of(make_spec):
    """The context of a training: `context_of(graph)`."""

    def make(graph=None):
        spec = make_spec(**({"transform_graph": graph} if graph else {}))
        return loaded.context(spec, 100, 1)

    return make


@pytest.fixture
def grown(workload, tmp_path):
    """The transform graph with a further entry, and all in another order."""
    graph = tmp_path / "graph"
    shutil.copytree(workload.graph, graph)
    file = graph / "transform_fn" / "assets" / "carrier"
    entries = file.read_text().split()
    file.write_text("\n".join(["ZZ", *entries[::-1], ""]))
    return str(graph)


def _model(context, package, *, eagerly=False):
    inputs = {"carrier": package.Input((1,), name="carrier", dtype="int64")}
    table = context.embedding("carrier", 3, keras=package, name="table")
    output = package.layers.Flatten()(table(inputs["carrier"]))
    model = package.Model(inputs, output)
    model.compile("sgd", "mse", run_eagerly=eagerly)
    return model


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("package", [tf.keras, keras])
def test_rows_move_with_entries_though_the_model_cannot_be_traced(
    context_of, grown, package, eagerly, tmp_path
):
    rows = {"carrier": tf.constant([[0], [1], [2], [3], [4]], tf.int64)}
    path, contexts = str(tmp_path / "weights"), (context_of(), context_of(grown))
    old, new = (_model(x, package, eagerly=eagerly) for x in contexts)
    found = [
        relations.find(model, rows, context.ids)
        for model, context in zip((old, new), contexts, strict=True)
    ]
    assert found[0].relations == [[Relation("carrier", 0, 0, 0, 4)]]
    assert found[1].relations == [[Relation("carrier", 0, 0, 0, 5)]]
    saved_weights.write(old, path)
    record.write(found[0], path)
    earlier_weights.read(new, path, tables=found[1])
    before, after = (context.vocabulary("carrier") for context in contexts)
    mine, other = new.get_weights()[0], old.get_weights()[0]
    for entry in before:
        np.testing.assert_array_equal(
            mine[after.index(entry)], other[before.index(entry)]
        )
    np.testing.assert_array_equal(mine[-1], other[-1])


def test_a_feature_without_a_vocabulary_is_rejected(context_of):
    with pytest.raises(UserError, match=r"(?s)`hour` does not have .*`carrier`"):
        context_of().embedding("hour", 3)

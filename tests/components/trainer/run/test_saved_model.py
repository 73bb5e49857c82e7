"""Signatures take columns by any name."""

from __future__ import annotations

import tempfile

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies

from strategos.components.trainer.run import saved_model

TEXT = strategies.text(
    strategies.characters(exclude_categories=["Cs"]), min_size=1, max_size=8
)


def _saved(folder, columns):
    """Saves a signature `predict` of columns; returns a value of each, and the sum."""
    names = saved_model.argument_names(columns)
    given = {column: [float(2**n)] for n, column in enumerate(names.values())}
    specs = {name: tf.TensorSpec([None], name=name) for name in names}
    total = tf.function(
        lambda raw: {"sum": tf.add_n([raw[n] * given[c][0] for n, c in names.items()])},
        input_signature=[specs],
    )
    archive = tf.keras.export.ExportArchive()
    archive.track(tf.Module())
    archive.add_endpoint("predict", total)
    archive.write_out(folder)
    saved_model.rename_inputs(folder, "predict", names)
    return given, sum(value**2 for (value,) in given.values())


def _as_served(folder, given):
    """The answer to columns by name, as TensorFlow Serving takes them."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], folder)
        signature = loaded.signature_def["predict"]
        fed = {signature.inputs[name].name: value for name, value in given.items()}
        assert signature.inputs.keys() == given.keys()
        return float(session.run(signature.outputs["sum"].name, fed)[0])


@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(strategies.sets(TEXT, min_size=2, max_size=8))
@hypothesis.example(
    {"a b", "a_b", "_x", "column_0", "größe", "self", "class", "label?", "a(", "Ä"}
)
def test_columns_of_any_name_are_inputs_by_that_name(columns):
    with tempfile.TemporaryDirectory() as folder:
        given, expected = _saved(folder, columns)
        assert _as_served(folder, given) == expected


@pytest.mark.parametrize("column", ["length (cm)", "größe", "class", "_x", "plain"])
def test_python_calls_the_signature_by_the_columns_names(tmp_path, column):
    given, expected = _saved(str(tmp_path), {column, "b"})
    signature = tf.saved_model.load(str(tmp_path)).signatures["predict"]
    answer = signature(**{name: tf.constant(value) for name, value in given.items()})
    assert float(answer["sum"][0]) == expected

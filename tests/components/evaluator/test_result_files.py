"""TFMA's files beside TFMA's own functions, byte for byte."""

from __future__ import annotations

import math

import tensorflow as tf
import tensorflow_model_analysis as tfma
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.evaluation.metrics import SliceMetrics
from strategos.components.evaluator.tfma import eval_config, result_files

VALUES = st.floats() | st.sampled_from([0.0, -0.0, math.nan])
METRICS = st.builds(lambda x, y: {"auc": x, "accuracy": y}, VALUES, VALUES)
ANY_ORDER = METRICS | METRICS.map(lambda x: dict(reversed(x.items())))
KEYS = st.text() | st.integers(-(2**63), 2**63 - 1) | VALUES


@settings(derandomize=True, deadline=None, max_examples=20)
@given(
    keys=st.lists(KEYS, min_size=1, max_size=6),
    data=st.data(),
    compared=st.booleans(),
)
def test_metrics_of_slices_are_written_as_tfma_writes_them(
    tmp_path_factory, keys, data, compared
):
    slices = [
        SliceMetrics(
            "f" if i else None,
            key if i else None,
            i,
            data.draw(ANY_ORDER),
            data.draw(METRICS | st.none()) if compared else None,
        )
        for i, key in enumerate(keys)
    ]
    evaluator = {"task": "binary", "metrics": ["auc", "accuracy"], "slices": ["f"]}
    config = tfma.utils.update_eval_config_with_defaults(
        eval_config.build(evaluator, "y"), has_baseline=compared, rubber_stamp=True
    )
    folder = str(tmp_path_factory.mktemp("files"))
    result_files.write(
        folder, config, slices, [], blessed=True, data="examples", models={}
    )
    names = [spec.name for spec in config.model_specs if not spec.is_baseline]
    names += [spec.name for spec in config.model_specs if spec.is_baseline]
    written = tf.data.TFRecordDataset(f"{folder}/metrics-00000-of-00001.tfrecord")
    for record, piece in zip(written.as_numpy_iterator(), slices, strict=True):
        assert record == expected(piece, *names)


def expected(piece, candidate, baseline=None):
    """The record that TFMA writes for a slice."""
    key, ours = (
        tfma.metrics.MetricKey,
        {"example_count": piece.examples, **piece.metrics},
    )
    metrics = {key(name, model_name=candidate): value for name, value in ours.items()}
    if baseline is not None and piece.baseline is not None:
        theirs = {"example_count": piece.examples, **piece.baseline}
        metrics |= {key(name, model_name=baseline): theirs[name] for name in theirs}
        for name, value in ours.items():
            change = key(name, model_name=candidate).make_diff_key()
            metrics[change] = value - theirs[name]
    slice_key = ((piece.feature, piece.value),) if piece.feature else ()
    written = tfma.writers.convert_slice_metrics_to_proto((slice_key, metrics), None)
    return written.SerializeToString()

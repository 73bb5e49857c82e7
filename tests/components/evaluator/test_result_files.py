"""TFMA's files beside TFMA's own functions, byte for byte."""

from __future__ import annotations

import math

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from hypothesis import given, settings
from hypothesis import strategies as st
from tfx.components.evaluator import constants

from strategos.components.evaluation.outcome import blessing
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.evaluator.tfma import eval_config, messages, result_files

pytestmark = pytest.mark.long

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


LIMITS = st.fixed_dictionaries(
    {}, optional={"at_least": st.floats(0, 1), "may_drop": st.floats(0, 1)}
)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(
    bound=LIMITS,
    slices=st.dictionaries(st.sampled_from(["f", "g"]), LIMITS),
    text=st.booleans(),
    compared=st.booleans(),
)
def test_settings_are_written_as_tfma_completes_them(bound, slices, text, compared):
    evaluator = {"task": "binary", "metrics": ["accuracy"], "slices": ["f"]}
    evaluator["bounds"] = {"auc": {**bound, "slices": slices}}
    expected = tfma.utils.update_eval_config_with_defaults(
        eval_config.build(evaluator, "y", text),
        has_baseline=compared,
        rubber_stamp=True,
    )
    tfma.utils.verify_eval_config(expected)
    ours = eval_config.effective(evaluator, "y", text, has_baseline=compared)
    assert ours == expected


def test_names_are_those_of_tfma_and_tfx():
    assert messages.VERSION == tfma.VERSION_STRING
    assert eval_config.CANDIDATE == tfma.CANDIDATE_KEY
    assert eval_config.BASELINE == tfma.BASELINE_KEY
    names = {each: vars(constants)[each] for each in dir(constants)}
    kinds = ("CURRENT_MODEL", "BASELINE_MODEL")
    uris = [names[f"ARTIFACT_PROPERTY_{each}_URI_KEY"] for each in kinds]
    assert list(blessing.MODELS) == uris
    ids = [names[f"ARTIFACT_PROPERTY_{each}_ID_KEY"] for each in kinds]
    assert [f"{each}_id" for each in uris] == ids
    assert names["ARTIFACT_PROPERTY_BLESSED_KEY"] == blessing.BLESSED
    assert names["BLESSED_FILE_NAME"] == blessing.FILES[True]
    assert names["NOT_BLESSED_FILE_NAME"] == blessing.FILES[False]


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

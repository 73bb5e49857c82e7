"""Errors of reconstructed features: scikit-learn's numbers, whatever the shards."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as stock
from tfx.types import standard_artifacts

from strategos.components.errors import UserError
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.plots import errors
from strategos.components.evaluation.sums import Sums

METRICS = ("mse", "mae", "rmse")
NAMES = ("age", "shop", "shop", "shop", "hour")  # the feature of each value


def summed(features, answer, place, weight, shards, names=NAMES):
    """Sums of rows that are cut into shards and merged, also through pickling."""
    total = Sums(METRICS, "reconstruction")
    for some in np.array_split(np.arange(len(features)), shards):
        part = Sums(METRICS, "reconstruction")
        member = SliceMembership([0, 1, 2], np.arange(len(some)), place[some])
        scores = {"candidate": {"prediction": answer[some]}}
        own = None if weight is None else weight[some]
        part.add(features[some], scores, {"place": member}, own, names)
        part.compact()
        total.merge(pickle.loads(pickle.dumps(part)))
    return total.metrics("candidate")


def wanted(features, answer, weight):
    given = {"sample_weight": weight}
    mse = stock.mean_squared_error(features, answer, **given)
    mae = stock.mean_absolute_error(features, answer, **given)
    return {"mse": mse, "mae": mae, "rmse": np.sqrt(mse)}


def chosen(piece, place, names):
    """The rows and the values of a slice."""
    rows, columns = np.ones(len(place), bool), np.ones(len(names), bool)
    if piece.feature == "place":
        rows = place == piece.value
    if piece.feature == "feature":
        columns = np.array(names) == piece.value
    return rows, columns


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    rows=st.integers(20, 60),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_errors_are_those_of_scikit_learn_however_rows_are_cut(
    widths, rows, weighted, seed
):
    draw = np.random.default_rng(seed)
    names = [f"f{i}" for i, width in enumerate(widths) for _ in range(width)]
    shape = rows, len(names)
    features, answer = draw.normal(size=shape) * 3, draw.normal(size=shape)
    features[:, 0] = np.round(features[:, 0])
    place = np.arange(rows) % 3
    weight = draw.integers(0, 3, rows) * 0.5 + 1e-9 * (place == 0) if weighted else None
    whole, cut = (summed(features, answer, place, weight, n, names) for n in (1, 4))
    assert len(whole) == 1 + 3 + len(widths)
    for one, other in zip(whole, cut, strict=True):
        assert (one.name, one.examples) == (other.name, other.examples)
        some, columns = chosen(one, place, names)
        assert one.examples == some.sum()
        own = None if weight is None else weight[some]
        if own is not None and not own.sum() > 1e-6:
            continue
        mine, theirs = features[some][:, columns], answer[some][:, columns]
        oracle = wanted(mine, theirs, own)
        assert one.metrics == pytest.approx(oracle, rel=1e-6)
        assert other.metrics == pytest.approx(oracle, rel=1e-6)
        mean = np.average(mine, axis=0, weights=own)
        oracle = wanted(mine, np.tile(mean, (len(mine), 1)), own)
        assert one.trivial.metrics == pytest.approx(oracle, rel=1e-4)
        assert other.trivial.metrics == pytest.approx(oracle, rel=1e-4)


def test_the_trivial_model_of_many_rows_is_right_to_three_digits():
    draw = np.random.default_rng(1)
    names = [f"f{i}" for i in range(200)]
    features = draw.lognormal(size=(2000, 200))
    place = draw.integers(0, 3, 2000)
    overall, *_ = summed(features, features, place, None, 3, names)
    mean = features.mean(axis=0, keepdims=True).repeat(2000, axis=0)
    oracle = wanted(features, mean, None)
    assert overall.trivial.metrics["mse"] == pytest.approx(oracle["mse"], rel=1e-9)
    assert overall.trivial.metrics["mae"] == pytest.approx(oracle["mae"], rel=1e-3)


def test_an_answer_that_is_not_finite_leaves_its_feature_undefined():
    draw = np.random.default_rng(2)
    features, place = draw.normal(size=(50, 5)), draw.integers(0, 3, 50)
    answer = features + 1
    answer[7, 2] = np.nan
    pieces = summed(features, answer, place, None, 2)
    undefined = {piece.name for piece in pieces if np.isnan(piece.metrics["mse"])}
    assert undefined == {"overall", "feature=shop", f"place={place[7]}"}


def test_quantiles_of_the_errors_of_rows_are_those_of_numpy():
    draw = np.random.default_rng(3)
    features = draw.normal(size=(4000, 3))
    answer = features + draw.lognormal(sigma=2, size=(4000, 1))  # far outliers
    weight = draw.integers(0, 3, 4000).astype(float)
    total = None
    for some in np.array_split(np.arange(4000), 4):
        part = features[some], answer[some], weight[some]
        found = errors.of_rows(*part, total)
        total = total.merge(found) if total else found
    points = errors.points_of_rows(total)
    assert points["resolution"] < 0.05
    error = ((answer - features) ** 2).mean(axis=1).repeat(weight.astype(int))
    for share, value, _ in points["quantiles"]:
        wanted = np.quantile(error, share, method="inverted_cdf")
        assert value == pytest.approx(wanted, rel=points["resolution"])


WIDTHS = {"x": 2, "delay": 1}
DELAY = json.dumps({"reconstruct": ["delay"]})


class Shifted(tf.Module):
    """Answers with the features of a row, each plus its own error.

    Args:
      errors: By feature, in the order of the answer.
    """

    def __init__(self, errors):
        super().__init__()
        self.errors = errors

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        made = self.transform(examples)
        answers = [made[name] + error for name, error in self.errors.items()]
        return {"predictions": tf.concat(answers, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        spec = {
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "delay": tf.io.FixedLenFeature([1], tf.float32),
        }
        return tf.io.parse_example(examples, spec)

    def save(self, folder, **described):
        folder = Path(folder, "Format-Serving")
        signatures = {
            "serving_default": self.serve,
            "transform_features": self.transform,
        }
        tf.saved_model.save(self, str(folder), signatures=signatures)
        (folder / "assets.extra").mkdir()
        (folder / "assets.extra" / "serving.json").write_text(json.dumps(described))
        return str(folder.parent)


def reconstructing(folder, **errors):
    """Saves a model that reconstructs features of two columns, or of one."""
    widths = {name: WIDTHS[name] for name in errors}
    return Shifted(errors).save(folder, reconstructs=widths)


def test_features_in_another_order_are_compared_each_with_itself(
    workload, evaluate, artifact, tmp_path
):
    baseline = reconstructing(tmp_path / "baseline", delay=3.0, x=4.0)
    found, *_ = evaluate(
        workload,
        tmp_path,
        "reconstruction",
        artifact(standard_artifacts.Model, baseline),
        model=reconstructing(tmp_path / "candidate", x=1.0, delay=2.0),
        label=json.dumps({"reconstruct": ["x", "delay"]}),
        metrics=["mae"],
        bounds={"mae": {"slices": {"feature": {"may_rise": 0}}}},
    )
    notes = {check["slice"]: check["note"] for check in found["bounds"]}
    assert notes == {"feature=x": "from 4 to 1", "feature=delay": "from 3 to 2"}


@pytest.mark.parametrize(
    ("task", "label", "production", "reason"),
    [
        ("reconstruction", DELAY, "damaged", "cannot be loaded"),
        ("reconstruction", DELAY, "of label", "trained on a label"),
        ("regression", "delay", "of features", "trained without a label"),
    ],
)
def test_a_model_of_another_kind_is_not_compared(
    workload, evaluate, artifact, tmp_path, task, label, production, reason
):
    model = of_features = reconstructing(tmp_path / "features", delay=1.0)
    if task == "regression":
        model = workload["regression", "candidate"]
    (tmp_path / "damaged" / "Format-Serving").mkdir(parents=True)
    baseline = {
        "damaged": str(tmp_path / "damaged"),
        "of label": workload["regression", "baseline"],
        "of features": of_features,
    }[production]
    found, *_ = evaluate(
        *(workload, tmp_path, task, artifact(standard_artifacts.Model, baseline)),
        model=model,
        label=label,
        metrics=["mae"],
    )
    assert reason in found["incomparable"]
    assert found["baseline"] is None
    assert found["blessed"], found["reason"]


def test_a_candidate_that_learned_a_label_is_rejected(workload, evaluate, tmp_path):
    with pytest.raises(UserError, match="candidate reconstructs no features"):
        evaluate(
            *(workload, tmp_path, "reconstruction"),
            model=workload["regression", "candidate"],
            label=DELAY,
            metrics=["mae"],
        )

"""The trivial model beside scikit-learn's, on random labels cut and merged anywhere."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as stock
from sklearn.dummy import DummyClassifier, DummyRegressor

from strategos.components.evaluation import metrics, trivial
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.sums import Sums

ONE_LABEL = ("binary", "multi_class", "regression")
derandomized = settings(derandomize=True, deadline=None, max_examples=30)
SLICES = 4
NUMBERS = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e6, 1e6, width=32),
    st.floats(1e9, 1.01e9, width=32),
)


def summed(label, code, task):
    """Sums of rows whose predictions do not matter, as of a worker."""
    label, code = np.asarray(label, np.float64), np.asarray(code, np.int64)
    found = Sums(metrics.names(task), task)
    seen, own = np.unique(code, return_inverse=True)
    member = SliceMembership(seen.tolist(), np.arange(len(code)), own.reshape(-1))
    zeros = np.zeros(len(label))
    columns = dict.fromkeys(("prediction", "right", "loss", "predicted"), zeros)
    if task != "multi_class":
        columns = {"prediction": zeros}
    found.add(label, {"candidate": columns}, {"part": member})
    return pickle.loads(pickle.dumps(found))


def expected(label, task):
    """scikit-learn's metrics of its dummy model, by our names."""
    label, rows = np.asarray(label), np.zeros((len(label), 1))
    if task == "regression":
        answer = DummyRegressor(strategy="mean").fit(rows, label).predict(rows)
        mse = stock.mean_squared_error(label, answer)
        mae = stock.mean_absolute_error(label, answer)
        return {"mae": mae, "mse": mse, "rmse": np.sqrt(mse)}
    model = DummyClassifier(strategy="prior").fit(rows, label)
    shares, classes = model.predict_proba(rows), model.classes_
    loss = stock.log_loss(label, shares, labels=[*classes, -1][: max(2, len(classes))])
    if len(classes) == 1:
        loss = 0.0
    accuracy = stock.accuracy_score(label, model.predict(rows))
    found = {"accuracy": accuracy, "log_loss": loss}
    if task == "binary" and len(classes) == 2:
        found["auc"] = stock.roc_auc_score(label, shares[:, 1])
        found["pr_auc"] = stock.average_precision_score(label, shares[:, 1])
    return found


def assert_as_stock(piece, label, task):
    for name, value in expected(label, task).items():
        scale = max(1.0, np.abs(label).max()) if task == "regression" else 1.0
        near = scale**2 if name == "mse" else scale
        # Errors of roundoff are of the size of the labels, not of their spread.
        assert piece.trivial.metrics[name] == pytest.approx(
            value, rel=1e-6, abs=1e-7 * near
        ), name


@pytest.mark.parametrize("task", ONE_LABEL)
@derandomized
@given(data=st.data())
def test_trivial_model_is_that_of_scikit_learn_on_each_slice(task, data):
    labels = {
        "binary": st.sampled_from([0.0, 1.0]),
        "multi_class": st.integers(0, 5).map(float),
        "regression": NUMBERS,
    }
    pairs = st.tuples(labels[task], st.integers(0, SLICES - 1))
    rows = data.draw(st.lists(pairs, min_size=1, max_size=60))
    label = np.array([label for label, _ in rows])
    code = np.array([code for _, code in rows])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(trivial, "_COMPACTED", data.draw(st.sampled_from([1, 99])))
        ends = itertools.pairwise([0, *cuts, len(rows)])
        parts = [summed(label[a:b], code[a:b], task) for a, b in ends if a < b]
        found = parts[0]
        for part in parts[1:]:
            found = found.merge(part)
        assert found.labels_vary() == (len(set(label)) > 1)
        for piece in found.metrics("candidate"):
            chosen = slice(None) if piece.feature is None else code == piece.value
            assert_as_stock(piece, label[chosen], task)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e6])
def test_many_distinct_numbers_are_close_and_do_not_depend_on_the_order(offset):
    """Of 200,000 labels, 1,024 per slice are kept apart."""
    draw = np.random.default_rng(0)
    label = offset + draw.lognormal(3, 2, 200_000)
    label = label.astype(np.float32).astype(np.float64)
    code = draw.integers(0, SLICES, len(label))
    found = set()
    for size, turned in ((7_000, False), (50_000, True), (200_000, False)):
        starts = range(0, len(label), size)
        parts = [
            summed(label[a : a + size], code[a : a + size], "regression")
            for a in (reversed(starts) if turned else starts)
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.merge(part)
        whole.compact()
        assert len(pickle.dumps(whole)) < 300_000
        for piece in whole.metrics("candidate"):
            chosen = slice(None) if piece.feature is None else code == piece.value
            for name, value in expected(label[chosen], "regression").items():
                assert piece.trivial.metrics[name] == pytest.approx(value, rel=1e-5)
        found.add(
            tuple(
                float(f"{p.trivial.metrics['mae']:.10g}")
                for p in whole.metrics("candidate")
            )
        )
    assert len(found) == 1


def test_undefined_metrics_of_the_trivial_model_are_nan():
    (whole, *_) = summed([0, 0, 0], [0, 0, 0], "binary").metrics("candidate")
    undefined = ["auc", "pr_auc", "precision", "recall", "calibration"]
    assert all(np.isnan(whole.trivial.metrics[name]) for name in undefined)
    assert whole.trivial.metrics["accuracy"] == 1.0
    assert whole.trivial.metrics["log_loss"] == 0.0
    assert whole.trivial.answer == 0.0


def test_trivial_answer_is_the_mean_or_the_first_of_the_most_frequent_classes():
    number = summed([1, 2, 6], [0, 0, 0], "regression").metrics("candidate")[0]
    assert number.trivial.answer == 3.0
    classes = summed([4, 2, 2, 4, 1], [0] * 5, "multi_class").metrics("candidate")[0]
    assert classes.trivial.answer == 2.0
    assert classes.trivial.metrics["accuracy"] == 0.4

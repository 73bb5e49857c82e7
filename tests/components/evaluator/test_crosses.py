"""Slices by bins and by crosses of features: the rows that pandas and TFMA find."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.evaluation import kept
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices import membership
from strategos.components.evaluation.slices.slicing import Slicing, slicings, text
from strategos.components.evaluation.sums import Sums

EDGES = [-1.5, 0.7, 16777217]
BINNED = {"feature": "number", "bins": EDGES}
WHOLE = {"feature": "whole", "bins": [0, 2**53 + 1]}
ENTRIES = ["word", BINNED, ["word", BINNED], ["word", WHOLE, "place"], [WHOLE, BINNED]]
NUMBERS = [math.nan, -math.inf, math.inf, -1.5, 0.7, 0.699, 0.0, 16777218.0, 3.5]
WHOLES = [-3, 0, 7, 2**53, 2**53 + 1, 2**53 + 2]
ROW = st.fixed_dictionaries(
    {
        "word": st.lists(st.sampled_from(["a", "b", "é"]), max_size=3),
        "place": st.lists(st.sampled_from(["x", "y"]), max_size=2),
        "number": st.lists(st.sampled_from(NUMBERS), max_size=2),
        "whole": st.lists(st.sampled_from(WHOLES), max_size=2),
        "score": st.sampled_from([0.0, 1e-7, 0.25, 0.5, 1.0]),
        "label": st.sampled_from([0.0, 1.0]),
    }
)


def sparse(rows, feature, dtype):
    places = [(i, j) for i, row in enumerate(rows) for j in range(len(row[feature]))]
    values = [value for row in rows for value in row[feature]]
    shape = [len(rows), 1 + max((j for _, j in places), default=0)]
    indices = np.array(places, np.int64).reshape(-1, 2)
    return tf.SparseTensor(indices, tf.constant(values, dtype), shape)


def summed(rows, cuts):
    """Sums over the parts of the rows between cuts."""
    asked, total = list(map(Slicing.of, ENTRIES)), None
    types = {"word": tf.string, "place": tf.string}
    types |= {"number": tf.float32, "whole": tf.int64}
    for part in np.split(np.array(rows, object), sorted({c % len(rows) for c in cuts})):
        features = {name: sparse(part, name, kind) for name, kind in types.items()}
        sums = Sums(["accuracy", "mean_prediction", "auc"], "binary", asked)
        label = np.array([row["label"] for row in part], np.float64)
        score = np.array([row["score"] for row in part], np.float64)
        members = membership.of(asked, features)
        sums.add(label, {"candidate": {"prediction": score}}, members)
        total = sums if total is None else total.merge(sums)
    return total


def expected(rows, entry):
    """Rows and mean prediction of each slice, by pandas."""
    frame = pd.DataFrame(list(rows)).assign(row=range(len(rows)))
    columns = []
    for part in Slicing.of(entry).parts:
        frame = frame[frame[part.feature].map(len) > 0].explode(part.feature)
        if part.edges:
            kind = np.float32 if part.feature == "number" else np.int64
            edges = np.array([*part.edges]).astype(kind)
            values = frame[part.feature].astype(kind)
            code = sum((values >= edge).astype(int) for edge in edges)
            bins = np.array([*map(str, part.bins), "nan"], object)
            code = code.where(values == values, len(bins) - 1)
            frame[part.feature] = bins[code]
        columns.append(part.feature)
    frame = frame.drop_duplicates([*columns, "row"])
    found = {}
    for key, group in frame.groupby(columns) if len(frame) else ():
        found[key if isinstance(key, str) else " x ".join(key)] = (
            len(group),
            group.score.mean(),
        )
    return found


@settings(derandomize=True, deadline=None, max_examples=20, phases=[Phase.generate])
@given(rows=st.lists(ROW, min_size=1, max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_slices_have_the_rows_that_pandas_finds_however_rows_are_cut(rows, cuts):
    found = summed(rows, cuts).metrics("candidate")
    for entry in ENTRIES:
        name = Slicing.of(entry).name
        ours = {
            text(piece.value): (piece.examples, piece.metrics["mean_prediction"])
            for piece in found
            if piece.feature == name
        }
        theirs = expected(rows, entry)
        assert ours.keys() == theirs.keys()
        for key, (examples, mean) in theirs.items():
            assert ours[key] == (examples, pytest.approx(mean, rel=1e-12))


def test_bins_are_those_of_pandas_and_stand_in_their_order():
    draw = np.random.default_rng(0)
    values = np.round(draw.normal(size=3000), 1).astype(np.float32)
    rows = [
        {"number": [x], "word": [], "place": [], "whole": [], "score": 0.0, "label": 1}
        for x in values.tolist()
    ]
    found = summed(rows, [100, 1000]).metrics("candidate")
    pieces = [piece for piece in found if piece.feature == "number"]
    assert [text(piece.value) for piece in pieces] == [
        *("[-inf, -1.5)", "[-1.5, 0.7)", "[0.7, 16777217)")
    ]
    edges = np.array([-math.inf, *EDGES, math.inf], np.float32)
    theirs = pd.Series(pd.cut(values, edges, right=False)).value_counts(sort=False)
    assert [piece.examples for piece in pieces] == [*theirs][:3]


@pytest.mark.long
def test_crosses_equal_those_of_tfma(workload, tmp_path, evaluate, stock, by_slice):
    section = {
        "task": "binary",
        "metrics": ["accuracy", "mean_prediction", "calibration"],
        "slices": [["carrier", "month"], "month", ["month", "grade", "carrier"]],
        "bounds": {"accuracy": {"slices": {"carrier x month": {"at_least": 0.99}}}},
    }
    verdict, evaluation, _ = evaluate(workload, tmp_path, **section)
    stock(workload, tmp_path / "tfma", "binary", section, "late")
    ours = by_slice(tfma.load_eval_result(evaluation.uri))
    theirs = by_slice(tfma.load_eval_result(f"{tmp_path}/tfma"))
    assert ours.keys() == theirs.keys() and len(ours) == 1 + 9 + 3 + 27
    for name, wanted in theirs.items():
        assert ours[name] == pytest.approx(wanted, abs=2e-6), name
    assert {check["slice"] for check in verdict["bounds"]} == {
        f"carrier x month={carrier} x {month}"
        for carrier in ("AA", "OO", "UA")
        for month in (1, 2, 3)
    }
    failed = tfma.load_validation_result(evaluation.uri).metric_validations_per_slice
    listed = {
        tuple(single.column for single in each.slice_key.single_slice_keys)
        for each in failed
    }
    assert not verdict["blessed"] and listed == {("carrier", "month")}


def test_summary_names_bins_and_judges_each(workload, tmp_path, evaluate):
    binned = {"feature": "delay", "bins": [1, 2.5]}
    bounds = {"accuracy": {"slices": {"delay": {"at_least": 0.0}}}}
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, slices=[binned, [binned, "month"]], bounds=bounds
    )
    names = {x["value"] for x in verdict["slices"] if x["feature"] == "delay"}
    assert names == {"[-inf, 1)", "[1, 2.5)", "[2.5, inf]"}
    assert [check["slice"] for check in verdict["bounds"]] == [
        *("delay=[-inf, 1)", "delay=[1, 2.5)", "delay=[2.5, inf]")
    ]
    crossed = [x for x in verdict["slices"] if x["feature"] == "delay x month"]
    assert len(crossed) == 9 and crossed[0]["value"] == "[-inf, 1) x 1"
    rows = sum(piece["examples"] for piece in crossed)
    assert rows == workload["rows"] and json.dumps(verdict, allow_nan=False)
    (key,) = next(
        key
        for key, _ in tfma.load_eval_result(evaluation.uri).slicing_metrics
        if key and key[0][1] == "[1, 2.5)"
    )
    assert key == ("delay", "[1, 2.5)")


def test_bins_of_a_text_are_rejected(workload, tmp_path, evaluate):
    with pytest.raises(UserError, match="`carrier` is a text, and bins are ranges"):
        evaluate(workload, tmp_path, slices=[{"feature": "carrier", "bins": [1]}])


def test_an_unknown_feature_of_a_cross_is_named(workload, tmp_path, evaluate):
    with pytest.raises(UserError, match=r"(?s)evaluator\.slices.*`carier`.*`carrier`"):
        evaluate(workload, tmp_path, slices=[["month", "carier"]])


def test_too_many_combinations_are_rejected(workload, tmp_path, evaluate, monkeypatch):
    for module in ("sums", "inputs.unfit"):
        name = f"strategos.components.evaluation.{module}.MOST_SLICES"
        monkeypatch.setattr(name, 4)
    cause = "received `carrier x month`; the features have more distinct combinations"
    with pytest.raises(UserError, match=cause):
        evaluate(workload, tmp_path, slices=[["carrier", "month"]])


def test_kept_sums_serve_other_bounds_and_no_other_bins(tmp_path):
    row = {"word": ["a"], "place": ["x"], "number": [math.nan], "whole": [3]}
    scored = Scored(summed([row | {"score": 0.5, "label": 1.0}], []))
    kept.write(tmp_path / "kept", scored, ["accuracy", "mean_prediction", "auc"])

    def read(*entries, **bounds):
        section = {"task": "binary", "metrics": ["auc"], "slices": entries}
        return kept.read(tmp_path / "kept", section | {"bounds": bounds})

    again = read(["word", BINNED], auc={"slices": {"word": {"at_least": 0.1}}})
    names = [piece.name for piece in again.sums.metrics("candidate")]
    assert names == ["overall", "word x number=a x nan", "word=a"]
    assert read(BINNED) and read([WHOLE, BINNED])
    assert read({"feature": "number", "bins": [1]}) is None
    assert read("number") is None and read([BINNED, "word"]) is None


def test_features_that_only_bounds_name_are_sliced_by():
    bounds = {"auc": {"slices": {"month": {"at_least": 1}, "number": {}}}}
    section = {"task": "binary", "slices": [BINNED], "bounds": bounds}
    assert slicings(section) == [Slicing.of(BINNED), Slicing.of("month")]

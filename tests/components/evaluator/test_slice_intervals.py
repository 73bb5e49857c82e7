"""Confidence intervals of slices: the resamples of a slice are those of its rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as stock

from strategos.components.evaluation import kept
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.heads import verdict as verdicts
from strategos.components.evaluation.intervals import margins, resampling
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices import slicing
from strategos.components.evaluation.slices.slicing import Slicing
from strategos.components.evaluation.sums import Sums

NAN = math.nan

ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),  # the label
        st.sampled_from([0.1, 0.25, 0.6, 0.9]),
        st.sampled_from([0.0, 0.5, 2.0]),  # the weight
        st.sets(st.sampled_from(["a", "b", NAN])),  # what the row is sliced by
    ),
    min_size=2,
    max_size=30,
)


def member_of(values):
    """The slices of rows with some values each."""
    present = sorted({x for each in values for x in each}, key=str)
    pairs = [(row, present.index(x)) for row, each in enumerate(values) for x in each]
    row, code = np.array(pairs, np.int64).reshape(-1, 2).T
    return SliceMembership(present, row, code)


def added(sums, rows, cut, weighted, first=0):
    """Adds rows to sums, in two parts."""
    for part in (rows[:cut], rows[cut:]):
        label, score, weight, values = zip(*part, strict=True) if part else [()] * 4
        times = resampling.times("f", first, len(part))
        first += len(part)
        counted = np.array(weight, float) if weighted else None
        scores = {"m": {"prediction": np.array(score, float)}}
        members = {"s": member_of(values)}
        sums.add(np.array(label, float), scores, members, counted, times=times)
    return sums


@settings(derandomize=True, deadline=None, max_examples=40)
@given(rows=ROWS, cut=st.integers(0, 30), weighted=st.booleans())
def test_a_resample_of_a_slice_has_the_metrics_of_its_rows_as_often(
    rows, cut, weighted
):
    names = ["auc", "accuracy", "log_loss"]
    found = added(Sums(names, "binary", resampled="slices"), rows, cut, weighted)
    found.compact()
    resampled = found.of_resamples("m")
    assert {(x.feature, x.value) for x in found.metrics("m")} == resampled.keys()
    times = np.concatenate(
        [resampling.times("f", 0, cut)[: len(rows)], resampling.times("f", cut, 30)]
    )[: len(rows)]
    label, score, weight, values = zip(*rows, strict=True)
    label, score = np.array(label), np.array(score, np.float64)
    for (feature, value), by_metric in resampled.items():
        inside = np.array([feature is None or value in each for each in values])
        for sample in range(resampling.RESAMPLES):
            counted = times[:, sample] * inside
            counted = counted * np.array(weight) if weighted else counted
            some = counted > 0
            more = {"sample_weight": counted[some]}
            wanted = dict.fromkeys(names, NAN)
            if some.any():
                right = (score > 0.5) == label
                wanted["accuracy"] = np.average(right[some], weights=counted[some])
                both = label[some], score[some]
                wanted["log_loss"] = stock.log_loss(*both, labels=[0, 1], **more)
            if len({*label[some]}) == 2:
                wanted["auc"] = stock.roc_auc_score(*both, **more)
            values_of = {x: by_metric[x][sample] for x in names}
            assert values_of == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("task", ["multi_label", "reconstruction"])
def test_parts_of_rows_and_crosses_are_resampled_with_their_rows(task):
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, (200, 3)).astype(float)
    answer = np.clip(label * 0.6 + draw.random((200, 3)) * 0.5, 0, 1)
    pairs = [{(int(a), "x")} for a in draw.integers(0, 3, 200)]
    names = {"multi_label": ["accuracy", "auc"], "reconstruction": ["mae"]}[task]
    classes = {"multi_label": ["p", "q", "r"], "reconstruction": ["p", "p", "r"]}[task]
    times = resampling.times("f", 0, 200)
    sums = Sums(names, task, resampled="slices")
    scores, members = {"m": {"prediction": answer}}, {"s x t": member_of(pairs)}
    sums.add(label, scores, members, None, classes, times)
    resampled = sums.of_resamples("m")
    assert {(x.feature, x.value) for x in sums.metrics("m")} == resampled.keys()
    for sample in range(resampling.RESAMPLES):
        again = np.repeat(np.arange(200), times[:, sample])
        alone = Sums(names, task)
        some = {"m": {"prediction": answer[again]}}
        member = {"s x t": member_of([pairs[i] for i in again])}
        alone.add(label[again], some, member, None, classes)
        for piece in alone.metrics("m"):
            of_slice = resampled[piece.feature, piece.value]
            values = {name: each[sample] for name, each in of_slice.items()}
            assert values == pytest.approx(piece.metrics, nan_ok=True)


def test_slices_have_intervals_in_the_summary_and_in_what_is_kept(tmp_path):
    draw = np.random.default_rng(1)
    rows = [
        (int(x > 0.4), 0.9 if x > 0.5 else 0.25, 1.0, {"b" if x > 0.9 else "a"})
        for x in draw.random(400)
    ]
    section = {
        "task": "binary",
        "metrics": ["accuracy", "auc"],
        "slices": ["s"],
        "bounds": {"accuracy": {"at_least": 0.1}},
        "confidence_level": 0.95,
    }
    by_slice = section | {"slice_intervals": True}
    asked = section["metrics"], "binary", [Slicing.of("s")]
    kept.write(tmp_path / "rows", Scored(added(Sums(*asked), rows, 9, False)), asked[0])
    assert kept.read(tmp_path / "rows", by_slice) is None  # must be scored again
    sums = added(Sums(*asked, "slices"), rows, 9, False)
    kept.write(tmp_path / "slices", Scored(sums), asked[0])

    def summary(evaluator):
        scored = kept.read(tmp_path / "slices", evaluator)
        return verdicts.of(scored, evaluator, "label", ["m"]).summary

    plain, found = summary(section), summary(by_slice)
    assert margins.heading_of_slices(plain) == ""
    assert margins.heading_of_slices(found) == "± (95 %)"
    assert found["intervals"] == plain["intervals"]
    common, rare = found["slices"]
    assert (common["value"], rare["value"]) == ("a", "b")
    margin = margins.of(common, "metrics")["accuracy"]
    share = common["metrics"]["accuracy"]
    expected = 1.96 * np.sqrt(share * (1 - share) / common["examples"])
    assert margin == pytest.approx(expected, rel=0.5)
    assert "auc" not in margins.of(rare, "metrics")  # whose labels are all 1


def test_a_feature_of_too_many_slices_has_no_intervals_however_rows_are_cut(
    monkeypatch,
):
    monkeypatch.setattr(slicing, "MOST_RESAMPLED", 3)
    draw = np.random.default_rng(2)
    rows = [(1, 0.5, 1.0, {str(x)}) for x in draw.integers(0, 4, 100)]
    parts = [
        added(Sums(["accuracy"], "binary", resampled="slices"), rows[a:b], 1, False)
        for a, b in ((0, 2), (2, 98), (98, 100))
    ]
    found = parts[0].merge(parts[1]).merge(parts[2])
    assert found.of_resamples("m").keys() == {(None, None)}
    assert len(found.metrics("m")) == 5
    section = {"task": "binary", "metrics": ["accuracy"], "slices": ["s"]}
    wanted = section | {"confidence_level": 0.9, "slice_intervals": True}
    summary = verdicts.of(Scored(found), wanted, "label", ["m"]).summary
    assert not any("intervals" in piece for piece in summary["slices"])
    chosen = found.selected(["accuracy"], [Slicing.of("s")], resampled="slices")
    assert chosen and chosen.of_resamples("m").keys() == {(None, None)}

"""Confidence intervals: resamples that no cut changes, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as stock
from tfx.types import standard_artifacts

from strategos.components.evaluation import kept, scoring
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.heads import verdict as verdicts
from strategos.components.evaluation.intervals import interval, margins, resampling
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.sums import Sums
from strategos.components.evaluator import SUMS_VARIABLE, judging_executor
from strategos.components.targets.label import Label

ALL = (None, None)
NAMES = ["auc", "accuracy", "recall@0.3", "log_loss", "calibration"]


def summed(label, scores, weight=None, file="a", size=None):
    """Sums of rows that come in parts of some size."""
    total, size = None, size or len(label)
    for first in range(0, len(label), size):
        part = slice(first, first + size)
        sums = Sums(NAMES, "binary")
        columns = {name: {"prediction": x[part]} for name, x in scores.items()}
        times = resampling.times(file, first, len(label[part]))
        counted = None if weight is None else weight[part]
        sums.add(label[part], columns, {}, counted, times=times)
        total = sums if total is None else total.merge(sums)
    return total


def drawn(draw, rows):
    x = draw.normal(size=rows)
    label = (draw.random(rows) < 1 / (1 + np.exp(-x))).astype(float)
    scores = {
        "m": 1 / (1 + np.exp(-x)),
        "b": 1 / (1 + np.exp(-0.5 * x - draw.normal())),
    }
    return label, scores


def test_rows_count_as_often_as_a_poisson_variable_says():
    found = resampling.times("a", 0, 100_000)
    assert found.shape == (100_000, resampling.RESAMPLES)
    counts = np.bincount(found.reshape(-1), minlength=12)[:6]
    wanted = stats.poisson(1).pmf(range(6)) * found.size
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-3
    between = np.corrcoef(found, rowvar=False) - np.eye(resampling.RESAMPLES)
    assert np.abs(between).max() < 0.015
    assert abs(np.corrcoef(found[:-1, 0], found[1:, 0])[0, 1]) < 0.015
    other = resampling.times("b", 0, 100_000)
    assert abs(np.corrcoef(found[:, 0], other[:, 0])[0, 1]) < 0.015


def test_a_row_counts_by_its_place_in_the_file():
    whole = resampling.times("/x/data-1.gz", 0, 50)
    parts = [resampling.times("/y/data-1.gz", first, 10) for first in range(0, 50, 10)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_resamples_have_the_metrics_of_the_rows_as_often(is_weighted):
    draw = np.random.default_rng(0)
    label, scores = drawn(draw, 700)
    weight = draw.choice([0.0, 0.5, 2.0], 700) if is_weighted else None
    found = summed(label, scores, weight, size=64)
    whole = summed(label, scores, weight)
    times = resampling.times("a", 0, 700)
    for model in scores:
        ours, score = found.of_resamples(model)[ALL], scores[model]
        for name, values in whole.of_resamples(model)[ALL].items():
            np.testing.assert_allclose(ours[name], values, rtol=1e-12)
        for sample in range(resampling.RESAMPLES):
            counted = times[:, sample] * (1 if weight is None else weight)
            more = {"sample_weight": counted}
            wanted = {
                "auc": stock.roc_auc_score(label, score, **more),
                "accuracy": stock.accuracy_score(label, score > 0.5, **more),
                "recall@0.3": stock.recall_score(
                    label, score > np.float32(0.3), **more
                ),
                "log_loss": stock.log_loss(label, score, **more),
                "calibration": np.average(score, weights=counted)
                / np.average(label, weights=counted),
            }
            assert {x: ours[x][sample] for x in NAMES} == pytest.approx(wanted)
    assert found.without_value() == {} and len(found.metrics("m")) == 1


def test_quantiles_are_those_of_scipy():
    for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
        wanted = stats.t.ppf((1 + level) / 2, 19)
        assert interval.quantile(level, 19) == pytest.approx(wanted, rel=2e-4)


def test_a_metric_that_a_resample_leaves_undefined_has_no_interval():
    draw = np.random.default_rng(0)
    label, scores = drawn(draw, 100)
    label[:] = 0
    label[0] = 1
    sums = summed(label, scores)
    found = sums.metrics("m")[0].metrics
    known = interval.around(found, sums.of_resamples("m")[ALL], 0.95)
    assert "auc" not in known and "accuracy" in known


@pytest.mark.long
def test_summary_has_intervals_whatever_the_shards(
    workload, tmp_path, artifact, evaluate, monkeypatch
):
    monkeypatch.setenv(SUMS_VARIABLE, str(tmp_path / "sums"))
    path = workload["binary", "baseline"]
    baseline = artifact(standard_artifacts.Model, path)
    asked = {"baseline": baseline, "metrics": ["auc", "accuracy"], "slices": ["month"]}
    plain, *_ = evaluate(workload, tmp_path / "plain", **asked)
    assert "intervals" not in plain
    found, *_ = evaluate(workload, tmp_path / "one", confidence_level=0.95, **asked)
    intervals = found.pop("intervals")
    assert found == plain and intervals["confidence_level"] == 0.95
    for name, (low, high) in intervals["metrics"].items():
        assert low < found["overall"][name] < high
    margin, change = (margins.of({"intervals": intervals}, x) for x in KINDS)
    share = found["overall"]["accuracy"]
    expected = 1.96 * np.sqrt(share * (1 - share) / found["examples"])
    assert margin["accuracy"] == pytest.approx(expected, rel=0.5)
    assert 0 < change["auc"] < margin["auc"]
    monkeypatch.setattr(scoring, "BATCH", 111)
    again, *_ = evaluate(
        *(workload, tmp_path / "two"), confidence_level=0.95, from_logits=False, **asked
    )
    for kind in KINDS:
        for name, ends in intervals[kind].items():
            assert again["intervals"][kind][name] == pytest.approx(ends, rel=1e-9)
    judged = {**asked, "executor": judging_executor.Executor}
    wider, *_ = evaluate(
        *(workload, tmp_path / "kept"), confidence_level=0.99, **judged
    )
    assert margins.of(wider, "metrics")["auc"] > margin["auc"]
    assert margins.heading(wider) == "± (99 %)"
    sliced, *_ = evaluate(
        *(workload, tmp_path / "slices"),
        confidence_level=0.95,
        slice_intervals=True,
        **asked,
    )
    margin = margins.of(sliced, "metrics")["accuracy"]
    assert margin == margins.of({"intervals": intervals}, "metrics")["accuracy"]
    for piece in sliced["slices"]:
        wider = np.sqrt(found["examples"] / piece["examples"])
        of_slice = margins.of(piece, "metrics")["accuracy"]
        assert of_slice == pytest.approx(margin * wider, rel=0.5)
        assert "auc" in margins.of(piece, "changes")


KINDS = ("metrics", "changes")


@pytest.mark.long
@pytest.mark.parametrize("rows", [300, 3000])
def test_intervals_cover_as_often_as_they_say(rows):
    draw, trials = np.random.default_rng(rows), 600
    shift = draw.normal(size=2_000_000)
    labels = draw.random(len(shift)) < 1 / (1 + np.exp(-shift))
    other = shift + np.random.default_rng(1).normal(size=len(shift))

    def scored(chosen):
        x, y = shift[chosen], other[chosen]
        models = {"m": 1 / (1 + np.exp(-x)), "b": 1 / (1 + np.exp(-y))}
        return labels[chosen].astype(float), models

    whole = Sums(NAMES, "binary")
    label, models = scored(slice(None))
    whole.add(label, {name: {"prediction": x} for name, x in models.items()}, {})
    truth = whole.metrics("m", "b")[0]
    hits = {kind: dict.fromkeys(NAMES, 0) for kind in KINDS}
    for trial in range(trials):
        sums = summed(*scored(draw.integers(0, len(shift), rows)), file=str(trial))
        ours, theirs = (sums.of_resamples(model)[ALL] for model in "mb")
        found = sums.metrics("m", "b")[0]
        change = {x: found.metrics[x] - found.baseline[x] for x in NAMES}
        gaps = {x: ours[x] - theirs[x] for x in NAMES}
        known = interval.around(found.metrics, ours, 0.95)
        changed = interval.around(change, gaps, 0.95)
        for name in NAMES:
            low, high = known[name]
            hits["metrics"][name] += low <= truth.metrics[name] <= high
            low, high = changed[name]
            wanted = truth.metrics[name] - truth.baseline[name]
            hits["changes"][name] += low <= wanted <= high
    # 600 trials of 95 % vary by ±1.7 points (two standard errors).
    for kind, counts in hits.items():
        for name, count in counts.items():
            assert 0.92 <= count / trials <= 0.98, (kind, name, count / trials)


def test_heads_have_intervals_thresholds_and_crosses_of_their_own(tmp_path):
    draw = np.random.default_rng(0)
    label, scores = drawn(draw, 300)
    binned = {"feature": "x", "bins": [0.0]}
    evaluator = {
        "task": {"late": "binary", "size": "regression"},
        "metrics": ["late.recall@0.3", "late.auc", "size.mae"],
        "slices": [["place", binned]],
        "bounds": {"late.recall@0.3": {"at_least": 0.1}},
        "confidence_level": 0.9,
    }
    sections, heads = naming.sections(evaluator), {}
    member = SliceMembership([("a", 1)], np.arange(300), np.zeros(300, np.int64))
    for head, section in sections.items():
        sums = Sums(section["metrics"], section["task"], section["slices"])
        columns = {name: {"prediction": x} for name, x in scores.items()}
        members = {each.name: member for each in section["slices"]}
        sums.add(label, columns, members, times=resampling.times("a", 0, 300))
        heads[head] = Scored(sums)
    kept.write(tmp_path / "kept", Scored(Sums((), ""), heads=heads), ["late.auc"])
    scored = kept.read(tmp_path / "kept", evaluator)
    columns = Label.of({"late": "l", "size": "s"}).text
    found = verdicts.of(scored, evaluator, columns, ["m", "b"]).summary
    alone = heads["late"].sums
    resampled = alone.of_resamples("m")[ALL]
    wanted = interval.around(alone.metrics("m")[0].metrics, resampled, 0.9)
    assert found["intervals"]["metrics"].keys() == {*evaluator["metrics"]}
    assert found["intervals"]["metrics"]["late.auc"] == [*wanted["auc"]]
    assert found["intervals"]["changes"].keys() == {*evaluator["metrics"]}
    assert [check["metric"] for check in found["bounds"]] == ["late.recall@0.3"]
    assert [piece["value"] for piece in found["slices"]] == ["a x 1"]
    other = evaluator | {"slices": [["place", {"feature": "x", "bins": [1.0]}]]}
    assert kept.read(tmp_path / "kept", other) is None

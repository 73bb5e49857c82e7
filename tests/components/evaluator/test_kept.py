"""Other bounds, slices and metrics, judged from kept sums beside a fresh evaluation."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tfx.types import standard_artifacts

from strategos.components.evaluation import kept, metrics, scoring
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.scored import Range, Scored
from strategos.components.evaluation.slices import slicing
from strategos.components.evaluation.sums import Sums
from strategos.components.evaluator import SUMS_VARIABLE, judging_executor
from strategos.components.evaluator.judging import Evaluation

FEATURES = ("text", "number")
VALUES = {"text": ["a", "b", "ü"], "number": [math.nan, -0.5, 3.0]}
SCORES = st.floats(0, 1, width=32) | st.sampled_from([0.0, 0.5, math.nan])
ROWS = st.lists(
    st.tuples(SCORES, SCORES, st.sampled_from([0.0, 1.0]), st.integers(0, 2)),
    min_size=1,
    max_size=30,
)


def scored_rows(rows, task, names, features):
    """The rows as one evaluation scores them."""
    columns = zip(*rows, strict=True)
    candidate, baseline, label, place = (np.array(x, np.float64) for x in columns)
    members = {}
    for name in features:
        present, code = np.unique(place.astype(np.int64), return_inverse=True)
        values = [VALUES[name][i] for i in present]
        members[name] = SliceMembership(values, np.arange(len(rows)), code)
    scores = {
        name: {"right": (x > 0.5) + 0 * x, "loss": x, "predicted": (x > 0.4) + 0 * x}
        if task == "multi_class"
        else {"prediction": x}
        for name, x in (("candidate", candidate), ("baseline", baseline))
    }
    sums, classes = Sums(names, task), ()
    if slicing.part_of(task):
        classes, label = ("rain", "wind"), np.stack([label, 1 - label], 1)
        for name, columns in scores.items():
            x = columns["prediction"]
            scores[name] = {"prediction": np.stack([x, x / 2], 1)}
    sums.add(label, scores, members, classes=classes)
    extremes = Range(candidate[:1], candidate[:1])
    return Scored(sums, ranges={"candidate": extremes}, unusable={"baseline": "is odd"})


def section(task, names, slices):
    return {"task": task, "metrics": names, "slices": slices}


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(x, marks=() if x == "binary" else pytest.mark.long)
        for x in metrics.TASKS
    ],
)
@settings(derandomize=True, deadline=None, max_examples=25)
@given(rows=ROWS, data=st.data())
def test_kept_sums_give_the_metrics_of_a_fresh_evaluation_to_the_bit(
    task, rows, data, tmp_path_factory
):
    names = metrics.names(task)
    path = tmp_path_factory.getbasetemp() / f"sums-{task}" / "kept"
    kept.write(path, scored_rows(rows, task, names, FEATURES), names)
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    slices = data.draw(st.lists(st.sampled_from(FEATURES), unique=True))
    found = kept.read(path, section(task, chosen, slices))
    fresh = scored_rows(rows, task, chosen, slices)
    pair = "candidate", "baseline"
    assert repr(found.sums.metrics(*pair)) == repr(fresh.sums.metrics(*pair))
    assert found.sums.without_value() == fresh.sums.without_value()
    assert repr(found.ranges) == repr(fresh.ranges)
    assert found.unusable == fresh.unusable


def test_sums_are_read_only_if_they_are_whole_and_have_all_that_is_asked(tmp_path):
    path = tmp_path / "kept"
    scored = scored_rows([(0.5, 0.2, 1.0, 0)], "binary", ["auc"], ["text"])
    kept.write(path, scored, ["auc"])
    assert kept.read(path, section("binary", ["auc"], ["text"]))
    assert kept.read(
        path, section("binary", ["pr_auc"], [])
    )  # of the same counts as the AUC
    assert kept.read(path, section("binary", ["accuracy"], [])) is None
    assert kept.read(path, section("binary", ["auc"], ["number"])) is None
    assert kept.read(tmp_path / "other", section("binary", ["auc"], [])) is None
    path.rename(other := tmp_path / "of another model")
    assert kept.read(other, section("binary", ["auc"], ["text"])) is None
    whole = other.read_bytes()
    for damaged in (whole[:-1], whole[:-9] + b"12345678" + whole[-1:], b""):
        path.write_bytes(damaged)
        assert kept.read(path, section("binary", ["auc"], ["text"])) is None
    path.write_bytes(whole)
    assert kept.read(path, section("binary", ["auc"], ["text"]))
    path.unlink()
    path.mkdir()
    assert kept.read(path, section("binary", ["auc"], ["text"])) is None


def test_an_evaluation_goes_on_if_its_sums_cannot_be_kept(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "kept"
    kept.write(path, scored_rows([(0.5, 0.2, 1.0, 0)], "binary", ["auc"], []), ["auc"])
    assert kept.read(path, section("binary", ["auc"], [])) is None


class Harmful:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_a_file_of_sums_runs_no_code(tmp_path):
    path, folder = tmp_path / "kept", tmp_path / "made"
    content = pickle.dumps(Harmful(folder))
    digest = hashlib.sha256(content).hexdigest()
    header = {"version": kept._VERSION, "name": path.name, "sha256": digest}
    header["bytes"] = len(content)
    path.write_bytes(json.dumps(header).encode() + b"\n" + content)
    assert kept.read(path, section("binary", ["auc"], [])) is None
    assert not folder.exists()
    scored = scored_rows([(0.5, 0.2, 1.0, 0)], "binary", ["auc"], [])
    kept.write(path, scored, ["auc"])
    assert path.read_bytes().startswith(json.dumps(header).encode()[:40])
    assert kept.read(path, section("binary", ["auc"], []))


def test_only_the_newest_sums_are_kept(tmp_path):
    scored = scored_rows([(0.5, 0.2, 1.0, 0)], "binary", ["auc"], [])
    for number in range(6):
        kept.write(tmp_path / str(number), scored, ["auc"])
        os.utime(tmp_path / str(number), (number, number))
    assert {each.name for each in tmp_path.iterdir()} == {"2", "3", "4", "5"}


BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "auc": st.fixed_dictionaries(
            {},
            optional={
                "at_least": st.floats(0.5, 1.0),
                "may_drop": st.floats(0, 0.2),
                "better_than": st.just("trivial"),
                "min_examples": st.integers(0, 500),
                "slices": st.dictionaries(
                    st.sampled_from(["carrier", "month"]),
                    st.fixed_dictionaries({"at_least": st.floats(0.5, 1.0)}),
                ),
            },
        ),
        "accuracy": st.fixed_dictionaries({"at_most": st.floats(0, 1)}),
    },
)
NAMES = [x for x in metrics.names("binary") if not metrics.METRICS[x].by_query]
SECTIONS = st.fixed_dictionaries(
    {
        "bounds": BOUNDS,
        "metrics": st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
        "slices": st.lists(st.sampled_from(["carrier", "month"]), unique=True),
    }
)


def contents(*artifacts):
    """Bytes of the files by name, and properties by name, of artifacts."""
    found = []
    for each in artifacts:
        properties = each.mlmd_artifact.custom_properties.items()
        found.append({name: str(value) for name, value in properties})
        files = Path(each.uri).iterdir()
        found.append({path.name: path.read_bytes() for path in files})
    return found


@pytest.mark.parametrize(
    "compared", [pytest.param(True, marks=pytest.mark.long), False]
)
def test_judging_kept_sums_leaves_what_a_fresh_evaluation_leaves(
    workload, tmp_path, artifact, evaluate, monkeypatch, compared
):
    baseline = None
    if compared:
        model = workload["binary", "baseline"]
        baseline = artifact(standard_artifacts.Model, model, none=0)
    monkeypatch.setenv(SUMS_VARIABLE, str(tmp_path / "sums"))
    every = {"slices": ["month", "carrier"]}
    evaluate(workload, tmp_path / "first", baseline=baseline, **every)
    numbers = itertools.count()

    @settings(derandomize=True, deadline=None, max_examples=8, phases=[Phase.generate])
    @given(section=SECTIONS)
    def check(section):
        folder = tmp_path / str(next(numbers))
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(SUMS_VARIABLE)
            found = evaluate(workload, folder / "a", baseline=baseline, **section)
        asked = {"baseline": baseline, **section}
        light = {"executor": judging_executor.Executor}
        alone = evaluate(workload, folder / "b", **asked, **light)
        beside = evaluate(workload, folder / "c", **asked)
        for again in (alone, beside):
            pairs = zip(contents(*again[1:]), contents(*found[1:]), strict=True)
            for ours, theirs in pairs:
                assert ours == theirs

    check()
    monkeypatch.setattr(scoring, "scored", None)  # no row is scored again
    evaluate(workload, tmp_path / "last", baseline=baseline, **every)


@pytest.mark.parametrize(
    "change",
    [{"task": "regression"}, {"from_logits": False}, {"label": "grade"}, {"new": 1}],
    ids=lambda change: next(iter(change)),
)
def test_sums_of_other_scores_are_not_judged(change, tmp_path, artifact, monkeypatch):
    monkeypatch.setenv(SUMS_VARIABLE, str(tmp_path))
    model = artifact(standard_artifacts.Model, "model")
    section = {"task": "binary", "metrics": ["mean_label"]}

    def evaluation(label="late", **changes):
        return Evaluation({"model": [model]}, {}, {**section, **changes}, label)

    rows = [(0.5, 0.2, 1.0, 0)]
    scored = scored_rows(rows, "binary", section["metrics"], [])
    unusable, scored.unusable = scored.unusable, {}
    evaluation().keep(scored)
    assert not list(tmp_path.iterdir())  # what the model consists of is not recorded
    model.set_string_custom_property("content", "weights")
    evaluation().keep(dataclasses.replace(scored, unusable=unusable))
    assert evaluation().kept() is None  # the model may be usable the next time
    evaluation().keep(scored)
    assert evaluation().kept()
    others = {"mean_label": {"at_least": 0.5}}
    assert evaluation(bounds=others, from_logits=None, allow_constant=True).kept()
    assert evaluation(**change).kept() is None
    model.set_string_custom_property("content", "other weights")
    assert evaluation().kept() is None

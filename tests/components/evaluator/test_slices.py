"""Slices by odd values, in several batches, compared with those of TFMA."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from strategos.components.errors import UserError
from strategos.components.evaluation import curves, scoring, sums
from strategos.components.shards.engine import Engine

# Values of a feature in a row. No row has NaN and another value: TFMA makes two slices
# of the NaN in such rows and of other NaN.
NUMBERS = [
    *([math.nan], [0.1], [-0.0], [0.0], [math.inf], [-math.inf], [], [0.1, 0.1]),
    *([math.nan], [0.0, -0.0], [1e20], [16777216.0], [1e-45], None),
]
WHOLES = [[2**63 - 1], [-(2**63)], [2**53], [2**53 + 1], [0], [], [1, 1], [1, 0], None]
WORDS = [["a"], ["é"], [""], [" "], ["*"], ["nan"], ["1"], ["a", "a"], [], ["b", "a"]]


@pytest.fixture
def odd_rows(eval_split, table):
    """The folder of 1,400 rows with odd values in three features."""
    return eval_split(table)


@pytest.fixture
def table():
    """Rows of `odd_rows`."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(1400):
        x = rng.normal(size=2).tolist()
        odd = {"number": NUMBERS, "whole": WHOLES, "word": WORDS}
        features = {name: values[i % len(values)] for name, values in odd.items()}
        present = {name: value for name, value in features.items() if value is not None}
        rows.append({"x": x, "late": int(sum(x) + rng.normal() > 0), **present})
    return rows


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(scoring, "BATCH", 100)


def by_name(slices):
    """Slices by text, in which NaN equals itself, and -0.0 equals 0.0."""
    found = {}
    for key, values in slices.items():
        name = "".join(f"{f}={v}".replace("=-0.0", "=0.0") for f, v in key)
        assert name not in found
        found[name] = values
    return found


@pytest.mark.long
def test_slices_by_odd_values_equal_those_of_tfma(
    workload, tmp_path, odd_rows, small_batches, evaluate, stock, by_slice
):
    section = {
        "task": "binary",
        "metrics": ["accuracy", "mean_prediction", "calibration"],
        "slices": ["number", "whole", "word"],
    }
    _, evaluation, _ = evaluate(workload, tmp_path, examples=odd_rows, **section)
    stock(workload, tmp_path / "tfma", "binary", section, "late", examples=odd_rows)
    ours = by_name(by_slice(tfma.load_eval_result(evaluation.uri)))
    theirs = by_name(by_slice(tfma.load_eval_result(f"{tmp_path}/tfma")))
    assert ours.keys() == theirs.keys()
    assert ours["number=nan"]["example_count"] == 200
    for name, expected in theirs.items():
        assert ours[name] == pytest.approx(expected, abs=2e-6), name


@pytest.mark.long
def test_result_does_not_depend_on_the_number_of_threads(
    workload, tmp_path, table, eval_split, monkeypatch, evaluate
):
    monkeypatch.setattr(scoring, "SHARD_BYTES", 1)
    monkeypatch.setattr(curves, "EXACT_SCORES", 300)
    monkeypatch.setattr(curves, "SLICE_SCORES", 1)
    examples = eval_split(table, files=41)
    found = []
    for workers in (1, 2, 5):
        variables = Engine(workers=workers).to_environment()
        monkeypatch.setenv(*variables.popitem())
        folder = tmp_path / f"{workers}"
        found.append(evaluate(workload, folder, examples=examples, slices=["number"]))
    first, *others = (verdict for verdict, *_ in found)
    assert first["errors"]["auc"] > 0
    assert [first] * 2 == others


def test_bound_on_an_area_that_is_not_exact_says_so(
    workload, tmp_path, monkeypatch, evaluate
):
    monkeypatch.setattr(curves, "EXACT_SCORES", 300)
    monkeypatch.setattr(curves, "SLICE_SCORES", 1)
    bounds = {"auc": {"at_least": 0.99}}
    verdict, _, _ = evaluate(workload, tmp_path, bounds=bounds)
    (check,) = verdict["bounds"]
    assert check["note"] == f"known to ±{verdict['errors']['auc']:.1g}"
    assert check["note"] in verdict["reason"]


def test_many_files_give_the_result_of_one(
    workload, tmp_path, table, eval_split, monkeypatch, evaluate
):
    """Each file goes to another call of a worker; the last one has no rows."""
    monkeypatch.setattr(scoring, "SHARD_BYTES", 1)
    section = {"slices": ["number", "whole", "word"]}
    files = {files: eval_split(table, f"of-{files}", files) for files in (1, 41)}
    whole, apart = (
        evaluate(workload, tmp_path / f"{number}", examples=folder, **section)[0]
        for number, folder in files.items()
    )
    assert apart["examples"] == 1400 and apart["without_value"]["word"] == 140
    for one, other in zip(
        [{"metrics": whole.pop("overall")}, *whole.pop("slices")],
        [{"metrics": apart.pop("overall")}, *apart.pop("slices")],
        strict=True,
    ):
        expected = one.pop("metrics")
        assert other.pop("metrics") == pytest.approx(expected, rel=1e-5)
        assert one == other
    assert whole == apart


@pytest.mark.engine
def test_evaluation_becomes_a_job_on_dataflow(
    workload, tmp_path, table, eval_split, monkeypatch, evaluate, dataflow_jobs
):
    monkeypatch.setattr(scoring, "SHARD_BYTES", 1)
    evaluate(workload, tmp_path, examples=eval_split(table, files=3))
    (job,) = dataflow_jobs
    transforms = job.proto_pipeline.components.transforms.values()
    assert {"Work", "Merge0"} <= {each.unique_name for each in transforms}


def test_feature_that_grows_with_the_rows_is_refused(
    workload, tmp_path, eval_split, monkeypatch, evaluate
):
    monkeypatch.setattr(sums, "MOST_SLICES", 50)
    rows = [
        {"x": [0.0, 1.0], "late": i % 2, "word": f"id-{i % 60}"} for i in range(200)
    ]
    expected = (
        "evaluator.slices: received `word`; the feature has more .*\n.*at most 50"
    )
    with pytest.raises(UserError, match=expected):
        evaluate(workload, tmp_path, examples=eval_split(rows), slices=["word"])


def test_bounds_are_held_against_whole_slices(
    workload, tmp_path, odd_rows, small_batches, evaluate
):
    bounds = {
        "accuracy": {"slices": {"number": {"at_least": 0.99}}, "min_examples": 200}
    }
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, examples=odd_rows, slices=["number"], bounds=bounds
    )
    checks = {check["slice"]: check for check in verdict["bounds"]}
    assert len(checks) == len(verdict["bounds"]) == 8
    judged = {name for name, check in checks.items() if not check["ok"]}
    assert judged == {"number=nan", "number=0.0", "number=0.1"}
    assert checks["number=nan"]["examples"] == 200
    result = tfma.load_validation_result(evaluation.uri)
    assert len(result.metric_validations_per_slice) == 3
    assert not result.missing_slices


def test_summary_names_values_as_people_write_them_in_strict_json(
    workload, tmp_path, odd_rows, evaluate
):
    verdict, _, _ = evaluate(workload, tmp_path, examples=odd_rows, slices=["number"])
    assert json.loads(json.dumps(verdict, allow_nan=False)) == verdict
    values = [piece["value"] for piece in verdict["slices"]]
    assert values == ["-inf", 0.0, 1e-45, 0.1, 16777216.0, 1e20, "inf", "nan"]


def test_rows_in_no_slice_are_counted(workload, tmp_path, odd_rows, evaluate):
    features = ["number", "whole", "word"]
    verdict, _, _ = evaluate(workload, tmp_path, examples=odd_rows, slices=features)
    assert verdict["without_value"] == {"number": 200, "whole": 310, "word": 140}


def test_words_that_are_not_utf8_stay_apart(workload, tmp_path, eval_split, evaluate):
    words = [b"\xff", b"\xfe", b"\xff", "é".encode()]
    rows = [
        {"x": [0.0, 1.0], "late": i % 2, "word": word} for i, word in enumerate(words)
    ]
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, examples=eval_split(rows), slices=["word"]
    )
    found = {piece["value"]: piece["examples"] for piece in verdict["slices"]}
    assert found == {r"\xfe": 1, r"\xff": 2, "é": 1}
    assert len(tfma.load_eval_result(evaluation.uri).slicing_metrics) == 4


def test_value_that_is_an_asterisk_is_no_missing_slice(
    workload, tmp_path, eval_split, evaluate
):
    rows = [{"x": [0.0, 1.0], "late": late, "word": "*"} for late in (0, 1)]
    bounds = {"accuracy": {"slices": {"word": {"at_least": 0.9}}}}
    verdict, evaluation, _ = evaluate(
        workload, tmp_path, examples=eval_split(rows), slices=["word"], bounds=bounds
    )
    assert "accuracy, word=*: at least 0.9 required, 0.5 received" in verdict["reason"]
    result = tfma.load_validation_result(evaluation.uri)
    assert not result.missing_slices and result.metric_validations_per_slice

"""SpanValidator's figures beside those of stock TFX and of the formulas."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strategos.components import span_validator
from strategos.components.data_files import span_checks
from strategos.components.errors import GateStoppedError, UserError

GATES = {
    "rows": {"at_least": 0.6, "at_most": 1.6},
    "missing": 0.2,
    "drift": {"at_most": 0.3, "features": {"when": 1.0}},
    "skew": {"at_most": 0.3, "features": {}},
    "on_anomaly": "stop",
}


@pytest.fixture
def write(tmp_path):
    """Writes a span: `write(number, columns)`, None for a missing value."""

    def write(span, folder="data", **columns):
        file = tmp_path / folder / str(span) / "rows.csv"
        file.parent.mkdir(parents=True)
        rows = zip(*columns.values(), strict=True)
        lines = [",".join("" if v is None else str(v) for v in row) for row in rows]
        file.write_text("\n".join([",".join(columns), *lines]) + "\n")
        return file

    return write


@pytest.fixture
def validate(tmp_path):
    """Runs SpanValidator: `validate(judged, usual)`; its report by (gate, feature)."""
    from tfx.types import standard_artifacts

    from strategos.components.span_validator import executor

    def validate(judged, usual, serving="", schema=""):
        anomalies = standard_artifacts.ExampleAnomalies()
        anomalies.uri = str(tmp_path / "anomalies")
        gates = dict(GATES) if serving else {**GATES, "skew": None}
        compared = {
            "judged": [[number, None, "f"] for number in judged],
            "usual": [[number, None, ""] for number in usual],
        }
        properties = {
            "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
            "serving": serving,
            "compared_spans": json.dumps(compared),
            "gates": json.dumps(gates),
            "schema_file": schema,
            "schema_fingerprint": "",
            "null_values": "[]",
        }
        executor.Executor().Do({}, {"anomalies": [anomalies]}, properties)
        text = (tmp_path / "anomalies" / span_checks.FILE).read_text()
        found = json.loads(text)
        by_name = {(c["gate"], c["feature"]): c for c in found["checks"]}
        return anomalies, found, by_name

    return validate


def _columns(rows, seed=0, late=0.25, mean=0.0, silent=False):
    random = np.random.default_rng(seed)
    return {
        "late": (random.random(rows) < late).astype(int),
        "delay": random.normal(mean, 1, rows).round(4),
        "carrier": [None] * rows if silent else random.choice(["A", "B"], rows),
        "when": np.arange(rows) + 1000 * seed,
    }


def test_a_bound_of_one_lets_any_distance_pass(write, validate):
    write(1, when=range(21))
    write(2, when=range(1000, 1021))  # to TFDV, 2e-16 more than 1 apart
    _, _, checks = validate([2], [1])
    check = checks["drift", "when"]
    assert check["ok"] is True and check["received"] == 1


def test_figures_of_a_good_span(write, validate, tmp_path):
    before, after = _columns(2000, 1), _columns(1900, 2, late=0.5)
    write(1, **before)
    write(2, **after)
    served = {name: after[name] for name in ("delay", "carrier")}
    serving = write("", "serving", **served)
    _, found, checks = validate([2], [1], serving=str(serving))
    assert found["spans"] == {}
    assert checks["rows", ""]["received"] == pytest.approx(0.95)
    shares = [np.mean(np.asarray(c["carrier"]) == "A") for c in (before, after)]
    received = checks["drift", "carrier"]["received"]
    assert received == pytest.approx(abs(shares[0] - shares[1]))
    middle = [(p + q) / 2 for p, q in zip(*_bernoulli(before, after), strict=True)]
    parts = [_kl(p, middle) / 2 for p in _bernoulli(before, after)]
    received = checks["drift", "late"]["received"]
    assert received == pytest.approx(sum(parts), rel=0.02)  # TFDV smooths
    assert checks["skew", "carrier"]["received"] == 0
    assert ("skew", "late") not in checks
    write("", "other", **{name: after[name] for name in ("carrier",)}, delay=[9] * 1900)
    _, found, checks = validate([2], [1], serving=str(tmp_path / "other/rows.csv"))
    assert checks["skew", "delay"]["ok"] is False
    assert found["spans"] == {}  # the serving data may be at fault


def _bernoulli(*columns):
    return [(1 - c["late"].mean(), c["late"].mean()) for c in columns]


def _kl(p, q):
    return sum(a * np.log2(a / b) for a, b in zip(p, q, strict=True))


def test_statistics_are_those_of_tfx(write, tmp_path):
    import tensorflow_data_validation as tfdv

    from strategos.components.data_files.spans import find_spans
    from strategos.components.shards.engine import Engine
    from strategos.components.span_validator.measure import Reader

    columns = {**_columns(500, 3), "odd": [None, 1.5, "é"] * 166 + [None] * 2}
    file = write(1, **columns)
    pattern = str(tmp_path / "data" / "{SPAN}" / "rows.csv")
    reader = Reader(Engine(), pattern, "", (), str(tmp_path / "work"))
    found = reader.of(find_spans(pattern)[0])
    stock = tfdv.generate_statistics_from_csv(str(file))

    def figures(statistics):
        dataset = statistics.datasets[0]
        return dataset.num_examples, {
            feature.path.step[0]: (
                (common := _stats(feature).common_stats).num_missing,
                common.num_non_missing,
                feature.num_stats.mean,
                feature.num_stats.std_dev,
                feature.string_stats.unique,
            )
            for feature in dataset.features
        }

    rows, mine = figures(found)
    assert rows == figures(stock)[0] == 500
    theirs = figures(stock)[1]
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        assert values == pytest.approx(theirs[name], rel=1e-6), name


def _stats(feature):
    return getattr(feature, feature.WhichOneof("stats"))


def test_a_bad_span_is_named_with_gate_feature_figure_and_bound(write, validate):
    from strategos.components.gate import spans as gate

    for span in (1, 2, 3):
        write(span, **_columns(1000, span))
    write(4, **_columns(400, 4, mean=100.0, silent=True))
    renamed = _columns(1000, 5)
    write(5, **{"dep_delay" if n == "delay" else n: v for n, v in renamed.items()})
    anomalies, found, _ = validate([4, 5], [1, 2, 3])
    assert found["spans"] == {"4": "f", "5": "f"}
    with pytest.raises(GateStoppedError) as caught:
        gate.Executor().Do({"anomalies": [anomalies]}, {}, {})
    lines = str(caught.value).splitlines()
    assert caught.value.exit_code == 3
    assert caught.value.spans == found["spans"]
    assert lines[0] == "spans 4, 5 failed 5 checks of `gates`:"
    assert [line.strip() for line in lines[1:6]] == [
        "rows, span 4: 0.4 received, at least 0.6 required (400 rows; 1,000 are usual)",
        "missing, span 4: `carrier`: 1 received, a rise of at most 0.2 allowed (no "
        "value in 100.0% of the rows; 0.0% are usual)",
        "drift, span 4: `delay`: 1 received, at most 0.3 allowed (against span 3)",
        "schema, span 5: `dep_delay`: a column that span 3 does not have",
        "missing, span 5: `delay`: 1 received, a rise of at most 0.2 allowed (the "
        "column does not exist; no value in 100.0% of the rows; 0.0% are usual)",
    ]


def test_a_span_that_does_not_fit_the_schema_is_named(write, validate, tmp_path):
    schema = tmp_path / "s.pbtxt"
    schema.write_text('feature { name: "x" type: INT int_domain { min: 0 max: 9 } }')
    write(1, x=[1, 2])
    write(2, x=[3, 11])
    write(3, x=[4, "many"])
    _, found, _ = validate([2, 3], [1], schema=str(schema))
    assert found["spans"] == {"2": "f", "3": "f"}
    notes = [check["note"] for check in found["checks"] if not check["ok"]]
    assert "11" in notes[0]
    assert "'many'" in notes[-1] and "rows.csv" in notes[-1]
    write(4, x=[5, 6])
    (rows, *_) = validate([4], [1, 3], schema=str(schema))[1]["checks"]
    assert (rows["ok"], rows["note"]) == (True, "2 rows; 2 are usual")


ODD = """
from pydantic import BaseModel
from strategos import Gate
from strategos.components.span_validator.gate import Check

class Settings(BaseModel, extra="forbid"):
    at_most: int

class Odd(Gate):
    settings = Settings

    def judge(self, span, settings):
        from strategos.components.span_validator import measure

        rows, most = int(measure.rows(span.found)), settings["at_most"]
        yield Check("odd", span.number, rows <= most, "", rows, "at_most", most, "all")
"""


def test_a_gate_of_a_plug_in_stops_the_run(install, write, validate, monkeypatch):
    install("odd", ODD, "[strategos.gates]\nodd = odd:Odd\n")
    write(1, **_columns(300))
    monkeypatch.setitem(GATES, "plugins", {"odd": {"at_most": 299}})
    _, found, by_name = validate([1], [])
    check = by_name["odd", ""]
    assert (check["ok"], check["received"], check["required"]) == (False, 300, 299)
    assert [each["gate"] for each in found["checks"] if not each["ok"]] == ["odd"]


def test_the_first_span_has_nothing_to_be_compared_with(write, validate):
    write(1, x=[1, 2])
    assert validate([1], [])[1] == {"checks": [], "spans": {}}


def _export(folder, factor, code=False):
    """A SavedModel that predicts sigmoid(factor * delay), times the text `code`."""
    import tensorflow as tf

    class Sigmoid(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
        )
        def serve(self, examples):
            spec = {"delay": tf.io.FixedLenFeature([1], tf.float32)}
            if code:
                spec["code"] = tf.io.FixedLenFeature([1], tf.string)
            parsed = tf.io.parse_example(examples, spec)
            times = tf.strings.to_number(parsed["code"]) if code else 1.0
            return {"predictions": tf.sigmoid(factor * times * parsed["delay"])}

    model = Sigmoid()
    signatures = {"serving_default": model.serve}
    tf.saved_model.save(model, str(folder), signatures=signatures)
    return str(folder)


def test_a_canary_is_judged_overall_and_by_slice_beside_the_live_model(write, tmp_path):
    from sklearn.metrics import roc_auc_score

    from strategos.components.span_validator import judging

    rows = _columns(600, 2, mean=1.0)
    write(2, **rows)
    bound = {"at_least": 0.0, "may_drop": 0.0, "slices": {"carrier": {"at_least": 0.5}}}
    evaluator = {"task": "binary", "metrics": ["auc"], "bounds": {"auc": bound}}
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        "schema": "",
        "null_values": [],
        "span": [2, None],
        "usual": [],
        "gates": None,
        "label": "late",
        "canary": _export(tmp_path / "canary", 1.0),
        "live": _export(tmp_path / "live", -1.0),
    }

    def judge(name, **changes):
        folder, given = str(tmp_path / name), {"evaluator": evaluator}
        return judging.judge({**request, **given, "folder": folder, **changes})

    found = judge("both")
    auc = roc_auc_score(rows["late"], rows["delay"])
    assert found["examples"] == 600
    assert found["overall"] == pytest.approx({"auc": auc})
    assert found["baseline"] == pytest.approx({"auc": 1 - auc})
    for each in found["slices"]:
        part = rows["carrier"] == each["value"]
        expected = roc_auc_score(rows["late"][part], rows["delay"][part])
        assert each["metrics"]["auc"] == pytest.approx(expected)
    assert len(found["slices"]) == 2
    assert found["blessed"] == all(check["ok"] for check in found["bounds"])
    given = {check["bound"]: check["received"] for check in found["bounds"][:2]}
    assert given == pytest.approx({"at_least": auc, "may_drop": 1 - 2 * auc})
    unusable = judge("unusable", live=str(tmp_path))
    assert [check["ok"] for check in unusable["bounds"][:2]] == [True, False]
    assert unusable["overall"] == found["overall"] and unusable["incomparable"]
    alone = judge("alone", live=None)
    assert (alone["baseline"], alone["overall"]) == (None, found["overall"])
    write(1, **_columns(200, 1, mean=1.0))
    gates = {**GATES, "skew": None, "drift": None}
    stopped = judge("gated", gates=gates, usual=[[1, None]])
    wide = {**gates, "rows": {"at_least": 0.6, "at_most": 3.0}}
    assert judge("passed", gates=wide, usual=[[1, None]]) == found
    assert stopped == {
        "at_fault": ["rows: 3 received, at most 1.6 allowed (600 rows; 200 are usual)"]
    }
    with pytest.raises(
        UserError, match=r"evaluator.slices: the span has no column `g`"
    ):
        judge("no slice", evaluator={**evaluator, "slices": ["g"]})


def test_a_preview_has_the_metrics_of_the_live_model_and_the_distances(write, tmp_path):
    from sklearn.metrics import accuracy_score, roc_auc_score

    from strategos.components.span_validator import preview_process

    model = _export(tmp_path / "model", 1.0)
    write(1, **_columns(500, 1))
    new = _columns(600, 2, mean=1.0)
    write(2, **new)
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        "schema": "",
        "null_values": [],
        "folder": str(tmp_path / "work"),
        "span": [2, None],
        "reference": [1, None],
        "model": model,
        "label": "late",
        "task": "binary",
        "metrics": ["auc", "accuracy"],
    }
    found = preview_process.preview(request)
    scores = 1 / (1 + np.exp(-new["delay"]))
    assert found["metrics"] == pytest.approx(
        {
            "auc": roc_auc_score(new["late"], scores),
            "accuracy": accuracy_score(new["late"], scores > 0.5),
        }
    )
    assert found["distances"]["delay"] > 0.1 > found["distances"]["late"]
    write(3, **{name: values for name, values in new.items() if name != "late"})
    with pytest.raises(UserError, match="label: the span has no column `late`"):
        preview_process.preview(
            {**request, "span": [3, None], "folder": f"{tmp_path}/3"}
        )
    alone = preview_process.preview({**request, "reference": None, "model": None})
    assert alone == {"distances": {}, "metrics": {}}


def test_a_span_is_scored_with_the_types_of_the_model_that_it_would_not_have(
    write, tmp_path
):
    from sklearn.metrics import roc_auc_score

    from strategos.components.span_validator import preview_process

    model = _export(tmp_path / "model", 1.0, code=True)
    schema = tmp_path / "model" / "assets.extra" / "schema.pbtxt"
    schema.parent.mkdir()
    types = {"delay": "FLOAT", "code": "BYTES"}
    features = (f'feature {{ name: "{n}" type: {t} }}' for n, t in types.items())
    schema.write_text("\n".join(features))
    rows = _columns(600, 2, mean=1.0) | {"code": np.arange(600) % 2 + 1}
    rows["delay"] = rows["delay"].round().astype(int)
    write(2, **rows)
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        **{"schema": "", "null_values": [], "folder": str(tmp_path / "work")},
        **{"span": [2, None], "reference": None, "model": model},
        **{"label": "late", "task": "binary", "metrics": ["auc"]},
    }
    expected = roc_auc_score(rows["late"], rows["delay"] * rows["code"])
    assert preview_process.preview(request)["metrics"] == pytest.approx(
        {"auc": expected}
    )


@pytest.fixture
def drift(write, validate):
    """The drift of a text column between two spans."""

    def call(before, after):
        write(1, s=before)
        write(2, s=after)
        _, _, checks = validate([2], [1])
        return checks["drift", "s"]

    return call


@pytest.mark.parametrize(("rows", "judged"), [(12, False), (199, False), (200, True)])
def test_distances_between_few_rows_are_not_judged(
    write, validate, monkeypatch, rows, judged
):
    monkeypatch.setitem(GATES, "drift", {**GATES["drift"], "min_rows": 200})
    write(1, s=["a", "b"] * 200)
    write(2, s=["x"] * rows)
    _, _, checks = validate([2], [1])
    assert (("drift", "s") in checks) == judged
    if not judged:
        check = checks["drift", ""]
        assert check["ok"]
        assert f"{rows} rows are fewer than min_rows: 200" in check["note"]


def test_a_column_whose_values_are_all_new_drifts_by_one(drift):
    names = [f"name {i}" for i in range(50)] * 10
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == 1 and not check["ok"]


def test_new_values_count_together(drift):
    names = [f"n{i}" for i in range(50)] * 10
    check = drift(names, names[:250] + [f"m{i}" for i in range(50)] * 5)
    assert check["received"] == pytest.approx(0.5)


def test_one_value_that_vanishes_is_measured_as_tfdv_does(drift):
    check = drift(["a", "b", "c", "c"] * 50, ["a", "c", "c", "c"] * 50)
    assert check["received"] == pytest.approx(0.25)


def test_values_that_occur_once_are_expected_to_be_new(drift):
    ids = [f"id{i}" for i in range(2000)]
    check = drift(ids[:1000], ids[1000:])
    assert check["received"] == pytest.approx(0.001) and check["ok"]


@pytest.mark.parametrize("seed", range(4))
def test_rare_values_of_the_same_data_are_no_drift(tmp_path, seed):
    """Two samples of one distribution with a long tail, as of tail numbers."""
    from strategos.components.span_validator import checks
    from strategos.components.span_validator.measure import Values

    random = np.random.default_rng(seed)
    samples = []
    for _ in range(2):
        drawn = np.minimum(random.zipf(1.3, 5000), 10**6).tolist()
        counts = {str(v): float(drawn.count(v)) for v in set(drawn)}
        samples.append(Values(counts, 5000.0, complete=True))
    new = sum(n for v, n in samples[1].counts.items() if v not in samples[0].counts)
    assert new / 5000 > 0.03
    assert checks._new_share(samples[1], samples[0]) < 0.015


def test_more_values_than_tfdv_ranks_are_compared(drift):
    names = [f"name {i}" for i in range(3000)] * 4
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == 1


def test_of_too_many_values_single_ones_are_compared(drift, monkeypatch):
    from strategos.components.span_validator import measure

    monkeypatch.setattr(measure, "RANKED", 40)
    names = [f"name {i}" for i in range(50)] * 10
    check = drift(names, [name.upper() for name in names])
    assert check["received"] == pytest.approx(1 / 40)  # TFDV: of the ranked ones


def test_statistics_of_other_code_are_not_used(write, tmp_path, monkeypatch):
    from strategos.components.data_files.spans import find_spans
    from strategos.components.shards.engine import Engine
    from strategos.components.span_validator import measure

    write(1, x=range(20))
    pattern = str(tmp_path / "data" / "{SPAN}" / "rows.csv")
    kept = tmp_path / "kept"
    monkeypatch.setenv(span_validator.FOLDER_VARIABLE, str(kept))
    reader = measure.Reader(Engine(), pattern, "", (), str(tmp_path / "work"))
    for _ in range(2):
        reader.of(find_spans(pattern)[0])
    assert len(list(kept.iterdir())) == 1
    monkeypatch.setattr(measure, "_code", lambda: "other code")
    reader.of(find_spans(pattern)[0])
    assert len(list(kept.iterdir())) == 2

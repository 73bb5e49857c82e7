"""SpanValidator's figures beside those of stock TFX and of the formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest

from strategos.components import span_validator
from strategos.components.errors import GateStoppedError


def test_a_bound_of_one_lets_any_distance_pass(write, validate):
    write(1, when=range(21))
    write(2, when=range(1000, 1021))  # to TFDV, 2e-16 more than 1 apart
    _, _, checks = validate([2], [1])
    check = checks["drift", "when"]
    assert check["ok"] is True and check["received"] == 1


@pytest.mark.parametrize(("missing", "ok"), [(17, True), (18, False)])
def test_a_rise_of_missing_values_by_just_the_bound_holds(
    write, validate, gates, missing, ok
):
    """17 % less 2 % exceed 15 % as doubles."""
    gates |= {"missing": 0.15, "drift": None}
    for span, empty in ((1, 2), (2, missing)):
        write(span, n=range(100), x=[None] * empty + [1] * (100 - empty))
    _, _, checks = validate([2], [1])
    assert checks["missing", "x"]["ok"] is ok


def test_figures_of_a_good_span(write, validate, tmp_path, columns):
    before, after = columns(2000, 1), columns(1900, 2, late=0.5)
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


def test_statistics_are_those_of_tfx(write, tmp_path, columns):
    import tensorflow_data_validation as tfdv

    from strategos.components.data_files.spans import find_spans
    from strategos.components.shards.engine import Engine
    from strategos.components.span_validator.measure import Reader

    given = {**columns(500, 3), "odd": [None, 1.5, "é"] * 166 + [None] * 2}
    file = write(1, **given)
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


def test_a_bad_span_is_named_with_gate_feature_figure_and_bound(
    write, validate, columns
):
    from strategos.components.gate import spans as gate

    for span in (1, 2, 3):
        write(span, **columns(1000, span))
    write(4, **columns(400, 4, mean=100.0, silent=True))
    renamed = columns(1000, 5)
    write(5, **{"dep_delay" if n == "delay" else n: v for n, v in renamed.items()})
    anomalies, found, _ = validate([4, 5], [1, 2, 3])
    assert found["spans"] == {"4": "f", "5": "f"}
    with pytest.raises(GateStoppedError) as caught:
        gate.Executor().Do({"anomalies": [anomalies]}, {}, {})
    lines = str(caught.value).splitlines()
    assert caught.value.exit_code == 3
    assert caught.value.spans == found["spans"]
    assert lines[0] == "spans 4, 5 failed 5 checks of `gates`:"
    shown = [re.sub(r"up to 0\.0\d+", "up to 0.0x", line) for line in lines[1:6]]
    assert [line.strip() for line in shown] == [
        "rows, span 4: 0.4 received, at least 0.6 required (400 rows; 1,000 are usual)",
        "missing, span 4: `carrier`: 1 received, a rise of at most 0.2 allowed (no "
        "value in 100.0% of the rows; 0.0% are usual)",
        "drift, span 4: `delay`: 1 received, at most 0.3 allowed (against span 3; "
        "samples of 400 and 1,000 rows of one distribution differ by up to 0.0x)",
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


def test_a_gate_of_a_plug_in_stops_the_run(install, write, validate, columns, gates):
    install("odd", ODD, "[strategos.gates]\nodd = odd:Odd\n")
    write(1, **columns(300))
    gates["plugins"] = {"odd": {"at_most": 299}}
    _, found, by_name = validate([1], [])
    check = by_name["odd", ""]
    assert (check["ok"], check["received"], check["required"]) == (False, 300, 299)
    assert [each["gate"] for each in found["checks"] if not each["ok"]] == ["odd"]


def test_the_first_span_has_nothing_to_be_compared_with(write, validate):
    write(1, x=[1, 2])
    assert validate([1], [])[1] == {"checks": [], "spans": {}}


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

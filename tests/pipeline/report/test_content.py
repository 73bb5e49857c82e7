"""What a report says of runs that ended in different ways."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from strategos.components.statistics import generators
from strategos.pipeline.history.lineage import LineageStep, MadeArtifact
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.made_from.compared import (
    Change,
    Comparison,
    FileChange,
    MetricChange,
    NodeChange,
)
from strategos.pipeline.made_from.record import MadeFrom
from strategos.pipeline.report import content, document, page
from strategos.pipeline.report.document import (
    Chart,
    Diff,
    Facts,
    Paragraph,
    Raw,
    Table,
)
from strategos.pipeline.report.record import Record, Statistics

_START = 1_795_278_914.0
HOSTILE = "</script><script>alert(1)</script>\u202egnp.\u202c 🛫 <b>&amp;"


def bound(**fields):
    known = {"metric": "auc", "slice": "overall", "bound": "at_least", "ok": True}
    known |= {"required": 0.7, "received": 0.74, "examples": 500, "note": None}
    return known | fields


def piece(value, auc, examples=100):
    metrics = {"auc": auc, "calibration": 1.0}
    return {
        **{"feature": "carrier", "value": value, "examples": examples},
        "metrics": metrics,
    }


def summary(**fields):
    return {
        **{"task": "binary", "label": "late", "examples": 500},
        "overall": {"auc": 0.74, "calibration": 1.013},
        "baseline": {"auc": 0.75, "calibration": 1.1},
        "trivial": {"answer": 0.2, "auc": 0.5, "calibration": 1.0},
        "errors": {"auc": 0.001},
        "slices": [piece("UA", 0.8), piece(HOSTILE, 0.6), piece("few", 0.1, 3)],
        "bounds": [bound(), bound(bound="may_drop", required=0.005, received=0.01)],
        **{"blessed": True, "reason": "bounds held: 2", **fields},
    }


def made(node, **properties):
    output = MadeArtifact(7, "out", "Examples", "/nowhere", properties)
    return LineageStep(node, 1, "r1", False, _START, 3.0, {"x": 1}, (output,), ())


def run(**fields):
    known = {
        **{"run_id": "r1", "pipeline": "flights", "started": _START},
        **{"finished": _START + 60, "outcome": "blessed", "blessed": True},
        "nodes": (NodeRun("ExampleGen", "complete", 2.5, 600),),
    }
    return Run(**(known | fields))


def report(*steps, **fields):
    return content.document(Record(run(**fields), steps, None))


def blocks(made, section, kind):
    (found,) = (each for each in made.sections if each.id == section)
    return [block for block in found.blocks if isinstance(block, kind)]


def test_metrics_stand_beside_production_and_the_trivial_model():
    table, _ = blocks(report(summary=summary()), "metrics", Table)
    auc, calibration = page.records(table)
    assert auc == {
        **{"metric": "auc", "model": 0.74, "error": 0.001, "baseline": 0.75},
        **{"change": pytest.approx(-0.01), "better": "worse", "trivial": 0.5},
    }
    assert calibration["better"] == "better"  # nearer to 1


def test_failed_bounds_come_first():
    failed = bound(slice="carrier=OO", required=0.6, received=0.51, ok=False)
    skipped = bound(slice="carrier=F9", received=None, skipped="few_examples")
    made = report(summary=summary(bounds=[skipped, bound(), failed]))
    table = blocks(made, "metrics", Table)[1]
    shown = [(each["slice"], each["result"]) for each in page.records(table)]
    assert shown == [
        *(("carrier=OO", "fails"), ("overall", "holds")),
        ("carrier=F9", "skipped"),
    ]
    assert table.title == "Bounds: 1 of 3 fails"


def test_worst_slices_are_drawn_without_slices_of_few_rows():
    (chart,) = blocks(report(summary=summary()), "slices", Chart)
    rows = page.records(chart.table)
    assert [each["value"] for each in rows] == [0.6, 0.8]
    (rule,) = (x for x in chart.spec["layer"] if x["mark"]["type"] == "rule")
    assert rule["encoding"]["x"]["datum"] == 0.74


def test_curves_have_each_epoch_of_training_and_validation():
    history = {"loss": [0.6, float("nan")], "val_loss": [0.5, 0.4]}
    made = report(trainer={"strategy": "mirrored", "history": history})
    (chart,) = blocks(made, "training", Chart)
    rows = [tuple(each.values()) for each in page.records(chart.table)]
    assert rows == [
        *((1, "training", 0.6), (2, "training", None)),
        *((1, "validation", 0.5), (2, "validation", 0.4)),
    ]


def test_a_long_training_keeps_its_last_epoch():
    history = {"loss": [1 / n for n in range(1, 2002)]}
    made = report(trainer={"strategy": "one_device", "history": history})
    (chart,) = blocks(made, "training", Chart)
    rows = page.records(chart.table)
    assert len(rows) <= 402 and rows[-1]["epoch"] == 2001


def test_a_run_that_failed_in_its_first_node_is_reported():
    cause = "data.examples: no file matches data/*.csv"
    nodes = (NodeRun("ExampleGen", "failed", 0.1, cause=cause),)
    made = report(
        **{"outcome": "failed", "blessed": None, "cause": cause},
        **{"failed_node": "ExampleGen", "nodes": nodes},
    )
    names = [each.id for each in made.sections]
    assert names == ["verdict", "graph", "environment"]
    (why,) = blocks(made, "verdict", Paragraph)
    assert why.text.value == f"ExampleGen: {cause}" and why.kind == "bad"
    assert "data/*.csv" in page.render(made, "")


def test_a_run_that_is_still_going_is_reported_as_such():
    made = report(outcome="running", finished=None, blessed=None, nodes=())
    text = blocks(made, "verdict", Paragraph)[0].text
    assert text.startswith("The run is still going")
    assert dict(blocks(made, "verdict", Facts)[0].rows)["outcome"].kind == "warn"


def test_settings_are_listed_by_dotted_key():
    step = dataclasses.replace(
        made("Trainer"),
        parameters={"epochs": 4, "settings": {"callbacks": {"csv": False}, "n": None}},
    )
    (table,) = blocks(report(step), "settings", Table)
    assert table.rows == [
        *[("Trainer", "epochs", "4"), ("Trainer", "settings.callbacks.csv", "false")]
    ]


def test_settings_have_their_origin_defaults_last():
    settings = {"label": "late", "trainer": {"seed": 1, "epochs": 2}}
    origins = {"label": "pipeline.yaml:3", "trainer.epochs": "--set"}
    made_from = MadeFrom(settings, "/p.yaml", {}, {}, (), "", {})
    known = dataclasses.replace(made_from, origins=origins)
    tables = [
        blocks(content.document(Record(run(), (), None, each)), "settings", Table)[0]
        for each in (known, made_from)
    ]
    assert tables[0].rows == [
        ("label", "late", "pipeline.yaml:3"),
        ("trainer.epochs", "2", "--set"),
        ("trainer.seed", "1", "default"),
    ]
    assert tables[1].rows[1] == ("trainer.seed", "1")  # of an earlier version


def test_a_redacted_report_has_no_value_of_the_data():
    warning = (("Trainer", f"`{HOSTILE}` is rare"),)
    whole = report(summary=summary(reason=f"auc, {HOSTILE}"), warnings=warning)
    made = document.redacted(whole)
    assert any(isinstance(cell, Raw) for cell in document.cells(whole))
    assert not any(isinstance(cell, Raw) for cell in document.cells(made))
    text = page.render(made, "")
    assert "alert(1)" not in text and "carrier=UA" not in text
    (chart,) = blocks(made, "slices", Chart)
    (table,) = blocks(made, "slices", Table)
    # The same slice has the same name everywhere.
    worst = page.records(chart.table)[0]
    same = [row for row in page.records(table) if row["slice"] == worst["slice"]]
    assert [row["auc"] for row in same] == [0.6]


@pytest.fixture
def validated(tmp_path):
    """The steps of nodes with statistics and anomalies in real files."""
    stats = statistics_pb2.DatasetFeatureStatisticsList()
    whole = stats.datasets.add(num_examples=10)
    delay = whole.features.add(type="FLOAT", path={"step": ["delay"]})
    delay.num_stats.CopyFrom(
        statistics_pb2.NumericStatistics(
            mean=2.5, std_dev=1.5, min=-7, median=2, max=99
        )
    )
    delay.num_stats.common_stats.num_non_missing = 8
    tail = whole.features.add(type="STRING", path={"step": ["tail"]})
    tail.string_stats.unique = 4
    tail.string_stats.top_values.add(value=HOSTILE, frequency=6)
    tail.string_stats.common_stats.num_non_missing = 10
    anomalies = anomalies_pb2.Anomalies()
    found = anomalies.anomaly_info["tail"]
    found.path.step.append("tail")
    found.reason.add(short_description="Unexpected value", description=HOSTILE)
    files = {
        "ExampleStatistics": ("FeatureStats.pb", stats),
        "ExampleAnomalies": ("SchemaDiff.pb", anomalies),
    }
    steps = []
    for node, kind in (
        *(("StatisticsGen", "ExampleStatistics"),),
        *(("ExampleValidator", "ExampleAnomalies"),),
    ):
        name, message = files[kind]
        path = tmp_path / kind / "Split-train" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(message.SerializeToString())
        output = MadeArtifact(7, "out", kind, str(tmp_path / kind), {})
        steps.append(LineageStep(node, 1, "r1", False, _START, 3.0, {}, (output,), ()))
    return steps


def test_statistics_and_anomalies_are_those_of_the_files(validated):
    made = report(*validated)
    anomalies, statistics = blocks(made, "data", Table)
    (row,) = page.records(anomalies)
    assert row == {
        **{"split": "train", "feature": "tail", "kind": "Unexpected value"},
        "text": HOSTILE,
    }
    delay, tail = page.records(statistics)
    numbers = [delay[x] for x in ("mean", "deviation", "low", "median", "high")]
    assert numbers == [2.5, 1.5, -7, 2, 99]
    assert (delay["missing"], delay["share"]) == (2, 20.0)
    assert (tail["distinct"], tail["missing"]) == (4, 0)
    (chart,) = blocks(made, "data", Chart)
    assert page.records(chart.table) == [{"feature": "delay", "share": 20.0}]
    hidden = page.render(document.redacted(made), "")
    assert "alert(1)" not in hidden and ">99" not in hidden.partition("<script")[0]


@pytest.fixture
def further(tmp_path):
    """The steps of DetailedStatistics, by carrier, and of TransformedStatistics."""
    from strategos.components.evaluation.slices.slicing import Slicing
    from strategos.components.statistics_gen.request import Request

    rows = {
        "carrier": [["AA"]] * 30 + [["UA"]] * 2,
        "delay": [[2.0]] * 10 + [[5.0]] * 20 + [None, [7.0]],
        "w": [[1.0]] * 10 + [[2.0]] * 20 + [[3.0]] * 2,
    }
    kinds = {"carrier": pa.binary(), "delay": pa.float32(), "w": pa.float32()}
    kinds["carrier"] = pa.large_binary()
    arrays = [pa.array(rows[x], pa.large_list(kind)) for x, kind in kinds.items()]
    batch = pa.RecordBatch.from_arrays(arrays, list(rows))
    steps = []
    for node, asked in (
        ("DetailedStatistics", {"slices": ["carrier"], "weight": "w"}),
        ("TransformedStatistics", {"sample": 0.25}),
    ):
        slices = tuple(map(Slicing.of, asked.get("slices", ())))
        request = Request(slices, asked.get("weight", ""))
        found = request.accumulated([batch], "train", 0).extracted()
        path = tmp_path / node / "Split-train" / "FeatureStats.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(found.SerializeToString())
        output = MadeArtifact(7, "x", "ExampleStatistics", str(tmp_path / node), {})
        given = {"request": {"slices": [], "weight": "", "sample": 1} | asked}
        steps.append(
            LineageStep(node, 1, "r1", False, _START, 3.0, given, (output,), ())
        )
    return steps


def test_slices_of_statistics_have_rows_weights_and_weighted_means(further):
    made = report(*further)
    by_slice, transformed = blocks(made, "data", Table)
    assert by_slice.title == "Weighted means by slice, split train"
    assert page.records(by_slice) == [
        {"slice": name, "rows": rows, "weight": weight, "mean-delay": mean, "mean-w": w}
        for name, rows, weight, mean, w in (
            (
                "All Examples",
                32,
                56.0,
                pytest.approx(241 / 53),
                pytest.approx(108 / 56),
            ),
            ("carrier_AA", 30, 50.0, pytest.approx(4.4), pytest.approx(1.8)),
            ("carrier_UA", 2, 6.0, 7.0, 3.0),
        )
    ]
    assert transformed.title == "Statistics of split train after Transform"
    assert [row["feature"] for row in page.records(transformed)] == [
        *("carrier", "delay", "w")
    ]
    facts = {k: v for each in blocks(made, "data", Facts) for k, v in each.rows}
    assert facts["slices"] == "carrier" and facts["weight"] == "w"
    assert facts["sample"] == "0.25 of the rows"
    hidden = blocks(document.redacted(made), "data", Table)[0]
    assert page.records(hidden)[2]["slice"] == "slice 2"
    assert page.records(hidden)[2]["mean-delay"] is None  # of two rows


@pytest.fixture
def distributed(tmp_path):
    """Makes a record: `distributed(train=columns, eval=columns, before=columns)`."""

    def write(folder, split, columns):
        arrays = [pa.array([[x] for x in each]) for each in columns.values()]
        batch = pa.RecordBatch.from_arrays(arrays, list(columns))
        path = tmp_path / folder / f"Split-{split}" / "FeatureStats.pb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generators.compute([batch]).SerializeToString())

    def distributed(before=None, **splits):
        for split, columns in splits.items():
            write("now", split, columns)
        if before:
            write("before", "train", before)
        output = MadeArtifact(7, "x", "ExampleStatistics", str(tmp_path / "now"), {})
        step = LineageStep(
            "StatisticsGen", 1, "r1", False, _START, 3.0, {}, (output,), ()
        )
        earlier = Statistics("r0", tmp_path / "before") if before else None
        return content.document(Record(run(), (step,), None, before=earlier))

    return distributed


def test_features_are_drawn_beside_eval_and_the_run_before(distributed):
    made = distributed(
        train={"wind": [0, 1, 1, 2], "tail": ["a", "a", HOSTILE, HOSTILE]},
        eval={"wind": [0, 0, 2, 2], "tail": ["a", "a", "a", HOSTILE]},
        before={"wind": [0, 1, 1, 2], "tail": ["b", "b", "b", "b"]},
    )
    about = blocks(made, "data", Paragraph)[0].text
    assert "The run before is r0; no gate judges" in about
    tail, wind = blocks(made, "data", Chart)  # the farthest first
    found = {(x["of"], x["x"]): x["y"] for x in page.records(wind.table)}
    thirds = {"train": (0.25, 0.5, 0.25), "eval": (0.5, 0, 0.5)}
    thirds["run before"] = thirds["train"]
    for of, wanted in thirds.items():
        drawn = [found[of, x] for x in (-0.5, 0.5, 1.5)]
        assert drawn == pytest.approx(wanted, abs=0.001)  # TFDV counts by a sketch
    shares = {(x["of"], x["value"]): x["share"] for x in page.records(tail.table)}
    assert shares["train", HOSTILE] == 0.5 and shares["eval", HOSTILE] == 0.25
    assert shares["run before", "b"] == 1 and shares["run before", HOSTILE] == 0
    distances = page.records(blocks(made, "data", Table)[0])
    assert [x["feature"] for x in distances] == ["tail", "wind"]
    assert [x["run before"] for x in distances] == [1, 0]
    hidden = document.redacted(made)
    assert [x.title for x in blocks(hidden, "data", Chart)] == ["tail"]
    assert "alert(1)" not in page.render(hidden, "")


def test_of_many_features_the_farthest_are_drawn(distributed):
    numbers = {f"n{place:03}": [1.0, 2.0, 3.0] for place in range(330)}
    made = distributed(train=numbers, eval=numbers | {"n300": [3.0, 3.5, 4.0]})
    drawn = [x.title for x in blocks(made, "data", Chart)]
    assert drawn[0] == "n300" and len(drawn) == 12
    assert "Distributions of 12 of 330 features" in page.render(made, "")
    table = blocks(made, "data", Table)[0]
    assert (len(table.rows), table.left_out) == (300, 30)
    alone = distributed(train=numbers)
    assert "No earlier run" in blocks(alone, "data", Paragraph)[0].text


def test_unreadable_anomalies_are_not_reported_as_none(validated, tmp_path):
    for path in tmp_path.rglob("SchemaDiff.pb"):
        path.unlink()
    made = report(*validated)
    assert not blocks(made, "data", Paragraph)


def compared(**fields):
    known = {
        "before": run(run_id="r0", outcome="not blessed"),
        "after": run(),
        "unknown": "",
        "settings": (Change("trainer.epochs", 1, 2), Change("weight", None, HOSTILE)),
        "code": (
            FileChange("model.py", "changed", ("@@ -1 +1 @@", "-a", f"+{HOSTILE}")),
            FileChange("table.bin", "added"),
        ),
        "data": (FileChange("/data/span-3/a.csv", "added"),),
        "stack": (),
        "metrics": (
            MetricChange("auc", 0.75, 0.74),
            MetricChange("log_loss", 0.5, 0.4),
            MetricChange("accuracy", None, 0.9),
        ),
        "slices": (MetricChange("auc", 0.5, 0.6, f"carrier={HOSTILE}", 40),),
        "nodes": (NodeChange("Trainer", None, NodeRun("Trainer", "complete", 2.5)),),
    }
    return content.document(Record(run(), (), None), Comparison(**(known | fields)))


def test_a_comparison_has_metrics_slices_and_times_of_both_runs():
    metrics, slices, times = blocks(compared(), "compared", Table)
    shown = [tuple(each.values()) for each in page.records(metrics)]
    assert shown == [
        ("auc", 0.75, 0.74, pytest.approx(-0.01), "worse"),
        ("log_loss", 0.5, 0.4, pytest.approx(-0.1), "better"),
        ("accuracy", None, 0.9, None, None),
    ]
    (row,) = page.records(slices)
    assert row["slice"] == f"carrier={HOSTILE}" and row["change"] == pytest.approx(0.1)
    assert page.records(times) == [
        {"node": "Trainer", "before": None, "after": "2.5 s"}
    ]
    about = dict(blocks(compared(), "compared", Facts)[0].rows)
    assert about["other run"] == "r0" and about["outcome"].kind == "bad"


def test_a_comparison_has_what_changed_with_the_lines_of_the_code():
    made = compared()
    settings, data, code = blocks(made, "changed", Table)
    assert settings.rows == [
        ("trainer.epochs", "1", "2"),
        ("weight", "not set", HOSTILE),
    ]
    assert data.rows == [("/data/span-3/a.csv", "added")]
    assert code.rows == [("model.py", "changed"), ("table.bin", "added")]
    (diff,) = blocks(made, "changed", Diff)
    assert diff.title == "model.py" and diff.left_out == 0
    html = page.render(made, "")
    assert '<span class="del">-a\n</span>' in html
    assert '<span class="ins">+&lt;/script&gt;' in html
    assert "<script>alert" not in html
    slices = blocks(document.redacted(made), "compared", Table)[1]
    assert slices.rows[0][0] == "slice 1"


def test_a_long_difference_is_cut_with_the_number_of_lines_left_out():
    code = (FileChange("model.py", "changed", ("+x",) * 1000),)
    (diff,) = blocks(compared(code=code), "changed", Diff)
    assert len(diff.lines) + diff.left_out == 1000 and diff.left_out > 0
    assert "600 more lines are not shown" in page.render(compared(code=code), "")


def test_runs_without_a_record_or_without_a_change_are_compared_by_results():
    made = compared(unknown="run r0: no record")
    (why,) = blocks(made, "changed", Paragraph)
    assert why.text == "What changed is unknown: run r0: no record"
    nothing = compared(settings=(), code=(), data=())
    (why,) = blocks(nothing, "changed", Paragraph)
    assert why.text.startswith("Nothing: the same settings")

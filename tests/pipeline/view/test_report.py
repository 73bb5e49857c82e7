from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from strategos.components.evaluation.outcome.bounds import FEW_EXAMPLES
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.view import report, terminal

_START = 1_795_278_914.0
_LEFT_OUT = ["left", "out", "under", "30", "rows"]


def screen(file, width):
    """A terminal, independent of the one that the test runs in."""
    terminal = dict(force_terminal=True, color_system=None, _environ={})
    return Console(file=file, width=width, height=40, **terminal)


def check(**fields):
    known = {"metric": "auc", "slice": "overall", "bound": "at_least", "ok": True}
    known |= {"required": 0.7, "received": 0.74, "examples": 67_210, "note": None}
    return known | fields


def piece(value, auc, examples=1000):
    metrics = {"auc": auc, "calibration": 1.0}
    return {
        "feature": "carrier",
        "value": value,
        "examples": examples,
        "metrics": metrics,
    }


def summary(*failed, baseline=None, slices=()):
    return {
        "task": "binary",
        "label": "late",
        "examples": 67_210,
        "overall": {"auc": 0.7412, "calibration": 1.013},
        "baseline": baseline,
        "slices": list(slices),
        "bounds": [check(), *failed],
        "blessed": not failed,
        "reason": "all 1 bounds hold",
    }


@pytest.fixture
def blessed(tmp_path):
    nodes = (
        NodeRun("ExampleGen", "complete", 3.14, 336_776),
        NodeRun("StatisticsGen", "cached", 0.01),
        NodeRun("Trainer", "complete", 61.0),
    )
    return Run(
        run_id="20261121-163012.123456",
        pipeline="flights",
        started=_START,
        finished=_START + 102,
        outcome="blessed",
        blessed=True,
        metrics={"auc": 0.7412, "calibration": 1.013},
        nodes=nodes,
        pushed=(f"{tmp_path}/serving/1795278914", "1795278914"),
        log=f"{tmp_path}/log.txt",
        runner="local",
        summary=summary(),
    )


def reported(run, width=None, **kwargs):
    file = io.StringIO()
    console = terminal.console(file)
    if width:
        console = screen(file, width)
    report.report(run, console=console, **kwargs)
    return file.getvalue().splitlines()


def test_a_report_ends_with_verdict_place_and_next_command(blessed):
    lines = reported(blessed, next_step="strategos predict p.yaml ROWS.csv")
    assert lines[0] == (
        "✓ flights  blessed in 1 min 42 s  run 20261121-163012.123456, local runner"
    )
    assert lines[1:4] == [
        "  ✓  ExampleGen          3.1 s  336,776 rows",
        "  ✓  StatisticsGen      cached",
        "  ✓  Trainer        1 min 01 s",
    ]
    assert lines[-3:] == [
        "  verdict    blessed: all 1 bounds hold",
        f"  pushed     {blessed.pushed[0]}",
        "  query it   strategos predict p.yaml ROWS.csv",
    ]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "one_device: asked for"),
        ({"replicas": 1, "restarts": 0}, "one_device: asked for"),
        ({"replicas": 4}, "one_device on 4 replicas: asked for"),
        ({"restarts": 1}, "one_device, restarted once: asked for"),
        (
            {"replicas": 2, "restarts": 3},
            "one_device on 2 replicas, restarted 3 times: asked for",
        ),
    ],
)
def test_a_report_shows_on_what_the_model_was_trained(blessed, facts, line):
    facts = {"strategy": "one_device", "reason": "asked for", **facts}
    run = dataclasses.replace(blessed, trainer=facts)
    assert f"  trained    {line}" in reported(run)


def test_a_model_that_was_pushed_by_an_earlier_run_is_only_serving(blessed):
    run = dataclasses.replace(blessed, nodes=(NodeRun("Pusher", "cached"),))
    assert f"  serving    {run.pushed[0]}" in reported(run)


def test_metrics_stand_beside_those_of_the_model_in_production(blessed):
    run = dataclasses.replace(
        blessed, summary=summary(baseline={"auc": 0.75, "calibration": 1.013})
    )
    lines = reported(run)
    assert "  67,210 examples    model  in production   change" in lines
    assert "  auc               0.7412         0.7500  -0.0088" in lines
    assert "  calibration       1.0130         1.0130     same" in lines


def test_without_a_model_in_production_there_is_nothing_to_compare(blessed):
    assert not any("production" in line for line in reported(blessed))


def test_metrics_stand_beside_those_of_the_trivial_model(blessed):
    text = summary(baseline={"auc": 0.75, "calibration": 1.013})
    text |= {"trivial": {"answer": 0.23914, "auc": 0.5, "calibration": None}}
    lines = reported(dataclasses.replace(blessed, summary=text))
    headings = "67,210 examples    model  in production   change  trivial"
    assert f"  {headings}" in lines
    assert "  auc               0.7412         0.7500  -0.0088   0.5000" in lines
    assert "  trivial    predicts the mean of `late`, 0.2391, for all rows" in lines
    text |= {"task": "multi_class"}
    lines = reported(dataclasses.replace(blessed, summary=text))
    assert any("the most frequent class of `late`, 0.2391," in line for line in lines)


@pytest.mark.parametrize(
    ("node", "outcome", "what"),
    [
        ("InfraValidator", "not blessed", "InfraValidator stopped the model"),
        ("Pusher", "failed", "Pusher failed"),
        ("Pusher", "interrupted", "Pusher was interrupted"),
    ],
)
def test_a_good_model_that_was_not_pushed_is_not_called_blessed(
    blessed, node, outcome, what
):
    ended = {"outcome": outcome, "failed_node": node, "cause": "py_function", "log": ""}
    lines = reported(dataclasses.replace(blessed, pushed=None, **ended))
    assert f"  verdict    not pushed: {what}; all 1 bounds hold" in lines
    assert not any(" blessed: " in line for line in lines)


def test_a_pushed_model_whose_report_failed_is_called_blessed(blessed):
    ended = {"failed_node": "RunReport", "cause": "OOMKilled (exit code 137)"}
    lines = reported(dataclasses.replace(blessed, **ended))
    assert "  verdict    blessed: all 1 bounds hold" in lines
    assert "  RunReport  OOMKilled (exit code 137)" in lines


def test_an_objection_is_reported_before_the_failed_bounds(blessed):
    bound = check(required=0.8, received=0.5, ok=False)
    text = summary(bound) | {"objections": ["the model predicts the same for all rows"]}
    run = dataclasses.replace(blessed, outcome="not blessed", pushed=None, summary=text)
    at = (lines := reported(run)).index("  verdict    not blessed: 1 of 2 bounds fails")
    assert lines[at + 1].strip() == "the model predicts the same for all rows"
    assert lines[at + 2].strip().startswith("auc, overall: at least 0.8 required")
    text = summary() | {"objections": ["one"], "blessed": False}
    assert "  verdict    not blessed" in reported(
        dataclasses.replace(run, summary=text)
    )


def test_the_worst_slices_of_each_bounded_metric_come_first(blessed):
    slices = [piece(c, auc) for c, auc in zip("ABCDEFG", range(7), strict=True)]
    slices += [piece("tiny", 0.0, examples=3), piece("one class", None)]
    skipped = check(slice="carrier=tiny", skipped=FEW_EXAMPLES)
    text = summary(slices=slices) | {"bounds": [check(), skipped]}
    lines = reported(dataclasses.replace(blessed, summary=text))
    at = next(i for i, line in enumerate(lines) if "worst slices" in line)
    shown = [line.split()[-3] for line in lines[at + 1 : at + 6]]
    assert shown == [f"carrier={c}" for c in "ABCDE"]
    assert lines[at + 6].split() == [*_LEFT_OUT, "1", "slice"]
    assert lines[at + 7] == ""


def test_slices_under_thirty_rows_are_not_among_the_worst_and_are_counted(blessed):
    slices = [piece("few", 0.0, examples=29), piece("fewer", None, examples=1)]
    slices += [piece("enough", 0.9, examples=30)]
    lines = reported(dataclasses.replace(blessed, summary=summary(slices=slices)))
    at = next(i for i, line in enumerate(lines) if "worst slices" in line)
    assert lines[at + 1].split() == ["auc", "carrier=enough", "0.9000", "30"]
    assert lines[at + 2].split() == [*_LEFT_OUT, "2", "slices"]


def test_slices_by_class_of_another_head_are_not_among_the_worst(blessed):
    slices = [piece("rain", 0.9) | {"feature": "class", "metrics": {"sky.auc": 0.9}}]
    text = summary(slices=[piece("AA", 0.7), *slices])
    lines = reported(dataclasses.replace(blessed, summary=text))
    at = next(i for i, line in enumerate(lines) if "worst slices" in line)
    assert lines[at + 1].split() == ["auc", "carrier=AA", "0.7000", "1,000"]
    assert lines[at + 2] == ""


def test_rows_in_no_slice_are_counted_below_the_worst_slices(blessed):
    text = summary(slices=[piece("[AA]", 0.7)])
    text |= {"without_value": {"carrier": 1_234, "month": 0}}
    lines = reported(dataclasses.replace(blessed, summary=text))
    at = next(i for i, line in enumerate(lines) if "worst slices" in line)
    assert lines[at + 1].split() == ["auc", "carrier=[AA]", "0.7000", "1,000"]
    assert lines[at + 2].split() == ["in", "no", "slice", "no", "carrier", "1,234"]
    assert lines[at + 3] == ""


def test_without_slices_no_worst_are_shown(blessed):
    assert not any("worst slices" in line for line in reported(blessed))


def test_without_the_summary_metrics_and_cause_are_reported_from_the_history(blessed):
    cause = "The model is not blessed: 1 bound of the evaluator failed.\n  auc 0.7"
    run = dataclasses.replace(
        blessed,
        outcome="not blessed",
        failed_node="EvaluationGate",
        cause=cause,
        summary=None,
        metrics={"auc": 0.7},
    )
    lines = reported(run)
    assert ["auc", "0.7"] in [line.split() for line in lines]
    assert any("1 bound of the evaluator failed" in line for line in lines)


def test_each_failing_bound_is_reported_required_against_received(blessed):
    bound = check(slice="carrier=OO", required=0.6, received=0.41, ok=False)
    run = dataclasses.replace(
        blessed, outcome="not blessed", pushed=None, summary=summary(bound)
    )
    lines = reported(run)
    assert "  verdict    not blessed: 1 of 2 bounds fails" in lines
    assert any("carrier=OO: at least 0.6 required, 0.41 received" in x for x in lines)
    assert "--without-baseline" not in "".join(lines)
    run.summary["incomparable"] = "the model in production cannot be loaded"
    assert "--without-baseline" in "".join(reported(run))
    assert not any("pushed" in line for line in lines)


def test_a_failed_run_names_node_cause_and_log(blessed):
    run = dataclasses.replace(
        blessed,
        outcome="failed",
        nodes=(NodeRun("Transform", "failed", 8.1, cause="boom"),),
        failed_node="Transform",
        cause="preprocessing.py: KeyError: 'dep_tyme'",
        pushed=None,
        summary=None,
    )
    lines = reported(run, next_step="strategos predict p.yaml ROWS.csv")
    assert "  ✗  Transform     8.1 s  failed" in lines
    assert lines[-2:] == [
        "  Transform  preprocessing.py: KeyError: 'dep_tyme'",
        f"  log        {run.log}",
    ]


@pytest.mark.parametrize("node", ["Pusher", "InfraValidator", "ExampleValidator"])
@pytest.mark.parametrize("width", [None, 80])
def test_a_blank_follows_the_name_of_the_node_that_failed(blessed, node, width):
    cause = "serving/model: cannot be loaded\n  second line"
    run = dataclasses.replace(
        blessed, outcome="failed", failed_node=node, cause=cause, summary=None
    )
    lines = reported(run, width)
    label = f"  {node:10} "
    at = lines.index(f"{label}serving/model: cannot be loaded")
    assert lines[at + 1].rstrip() == f"{' ' * len(label)}  second line"


def test_a_cause_of_several_lines_stays_under_its_label(blessed):
    run = dataclasses.replace(
        blessed, outcome="failed", failed_node="Trainer", cause="one:\n\n  two\n"
    )
    lines = reported(run)
    at = lines.index("  Trainer    one:")
    assert lines[at + 1] == " " * 13 + "  two"


def test_an_undefined_metric_is_a_dash(blessed):
    text = summary() | {"overall": {"auc": None}, "baseline": {"auc": 0.7}}
    lines = reported(dataclasses.replace(blessed, summary=text))
    assert any(line.split() == ["auc", "-", "0.7000", "-"] for line in lines)


@pytest.mark.parametrize("width", [40, 20])
def test_a_narrow_window_cuts_no_figures(blessed, width):
    slices = [piece("LaGuardia", 0.71), piece("Newark", 0.62, examples=123_456)]
    run = dataclasses.replace(blessed, summary=summary(slices=slices))
    lines = reported(run, width)
    assert "…" not in "".join(lines)
    assert [line for line in reported(run, 80) if "carrier=" in line] == [
        line for line in lines if "carrier=" in line
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_fits_its_terminal_but_for_what_is_copied(blessed, width):
    bound = check(slice="carrier=OO", received=0.41, ok=False, note="words " * 30)
    run = dataclasses.replace(blessed, outcome="not blessed", summary=summary(bound))
    lines = reported(run, width, next_step="strategos predict " + "x" * 150)
    long = [line for line in lines if len(line) > width]
    assert all(line.split()[0] in ("pushed", "query", "log") for line in long)
    assert any(line.endswith("x" * 150) for line in long)


def test_outside_a_terminal_no_line_ends_in_blanks(blessed):
    assert all(line == line.rstrip() for line in reported(blessed))


def history(runs, width=None):
    file = io.StringIO()
    console = terminal.console(file)
    if width:
        console = screen(file, width)
    report.history_table(runs, console=console)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_history_is_one_whole_line_per_run(blessed, width):
    failed = dataclasses.replace(
        blessed,
        run_id="20261121-153012.123456",
        outcome="failed",
        metrics={},
        failed_node="Transform",
        cause="preprocessing.py: " + "much " * 40,
    )
    lines = history([blessed, failed], width)
    assert sum("20261121-" in line for line in lines) == 2
    assert "20261121-163012.123456  blessed" in lines[1]
    assert "1 min 42 s" in lines[1] and "0.7412" in lines[1]
    assert "20261121-153012.123456  failed" in lines[2]
    assert "Transform" in lines[2] and lines[2].rstrip().endswith("…")


@pytest.mark.parametrize("pipeline", ["flights", "digits"])
def test_versions_are_whole_at_80_columns(blessed, pipeline):
    other = dataclasses.replace(blessed, pipeline=pipeline, outcome="not blessed")
    lines = history([blessed, other], 80)
    lines = [line for line in lines if "more metric" not in line]
    assert all(len(line) <= 80 for line in lines)
    assert blessed.pushed[1] in lines[1].split()
    assert "pushed" in lines[0].split()


def test_a_history_of_several_pipelines_names_them(blessed):
    other = dataclasses.replace(blessed, pipeline="digits")
    assert not any("flights" in line for line in history([blessed]))
    lines = history([blessed, other])
    assert "flights" in lines[1] and "digits" in lines[2]


def test_an_empty_history_reports_it():
    assert history([]) == ["no runs yet"]


def test_history_shows_the_more_telling_metrics_where_not_all_fit():
    metrics = {"calibration": 1.0, "mean_label": 0.2, "accuracy": 0.8, "auc": 0.7}
    run = Run("r", "p", 0.0, 9.0, "blessed", metrics=metrics)
    assert history([run], width=100)[0].split()[-2:] == ["auc", "accuracy"]


@pytest.mark.parametrize(
    ("width", "ways"), [(None, "--json"), (80, "a wider terminal")]
)
def test_a_history_names_the_metrics_that_it_has_no_room_for(width, ways):
    names = ["auc", "accuracy", "precision", "recall", "calibration"]
    run = Run("r", "p", 0.0, 9.0, "blessed", metrics=dict.fromkeys(names, 0.5))
    *table, last = history([run], width)
    hidden = [name for name in names if name not in table[0].split()]
    assert last.startswith(f"{len(hidden)} more metrics ({', '.join(hidden)}): {ways}")
    assert "more metric" not in "".join(history([run], 200))

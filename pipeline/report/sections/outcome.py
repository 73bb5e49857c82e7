"""Sections on the result of a run: verdict, metrics, bounds, slices, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import node_ids
from strategos.components.evaluation.by_query import described
from strategos.components.evaluation.intervals import margins
from strategos.components.evaluation.metrics import METRICS, badness, bare
from strategos.components.evaluation.outcome import summary as verdicts
from strategos.components.evaluation.outcome.bounds import BOUNDS, apart
from strategos.components.wording import counted, duration
from strategos.pipeline.history.runs import Run
from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Facts,
    Kind,
    Paragraph,
    Raw,
    Section,
    State,
    Table,
    header,
)
from strategos.pipeline.root import boosted_trees
from strategos.pipeline.root.boosted_trees import Trees
from strategos.pipeline.view import results, terminal

_BOUNDS = 200  # rows of the table
_SLICES = 200
_WORST = 15  # slices in the chart
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("blessed", "finished", "complete"), "good"),
    **dict.fromkeys(("not blessed", "failed"), "bad"),
    **dict.fromkeys(("stopped", "interrupted", "running"), "warn"),
}


def state(word: str) -> State:
    """The outcome of a run or the state of a node, in its colour."""
    return State(word, _KINDS.get(word, "plain"))


def verdict(run: Run) -> Section:
    """How the run ended, and why."""
    return Section("verdict", "Verdict", [*_reasons(run), Facts(list(_about(run)))])


def _reasons(run: Run) -> Iterator[Block]:
    if run.outcome == "running":
        text = "The run is still going: this report has what is recorded so far."
        yield Paragraph(text, "warn")
    if run.cause:
        cause = Raw(f"{run.failed_node or run.outcome}: {run.cause}", "cause")
        yield Paragraph(cause, state(run.outcome).kind)
    elif run.outcome == "interrupted":
        yield Paragraph("The run was interrupted, or its process was killed.", "warn")
    if run.summary and not run.cause:
        kind: Kind = "good" if run.summary["blessed"] else "bad"
        yield Paragraph(Raw(run.summary["reason"], "reason"), kind)
    elif run.summary is None and not run.cause and run.outcome == "finished":
        yield Paragraph("No model was evaluated.")


def _about(run: Run) -> Iterator[tuple[str, Cell]]:
    yield "outcome", state(run.outcome)
    if run.blessed is not None:
        word = "blessed" if run.blessed else "not blessed"
        yield "model", state(word)
    yield "started", terminal.moment(run.started)
    if run.duration is not None:
        yield "took", duration(run.duration)
    if run.pushed:
        yield (run.slot or "pushed"), run.pushed[0]
    if run.predicted:
        yield "predicted", run.predicted
    if run.reason:
        yield "reason of the run", run.reason
    if run.warnings:
        yield "warnings", len(run.warnings)
    yield "log", run.log


def metrics(run: Run, beside: Trees | None = None) -> Section | None:
    """The metrics of all rows, and the bounds; None without metrics.

    Args:
      run: The run.
      beside: Trees on the same rows, to compare the model with.
    """
    if run.summary is None:
        values = run.metrics or run.trainer.get("evaluation") or {}
        rows = list(values.items())
        columns = header("metric | model#")
        table = Table("Metrics", columns, rows)
        return Section("metrics", "Metrics", [table]) if rows else None
    blocks: list[Block] = [_metrics(run.summary)]
    if answers := verdicts.trivial_answers(run.summary):
        several = len(answers) > 1
        what = "; ".join(_trivial(*answer, several) for answer in answers)
        blocks.append(Paragraph(f"The trivial model answers {what}, for all rows."))
    if beside and beside.metric in run.summary["overall"]:
        value = f"{beside.metric} {beside.value:.4g}"
        text = f"{boosted_trees.NAME.capitalize()} on the same rows: {value}."
        blocks.append(Paragraph(text))
    if run.summary.get("incomparable"):
        text = f"No comparison with production: {run.summary['incomparable']}"
        blocks.append(Paragraph(Raw(text, "message"), "warn"))
    if run.summary["bounds"]:
        blocks.append(_bounds(run.summary))
    return Section("metrics", "Metrics and bounds", blocks)


def _trivial(task: str, label: str, answer: float, several: bool) -> str:
    of = f" of `{label}`" if several else ""
    if task == "multi_label":
        return f"the share of each class{of}, {answer:.4g} on average"
    if task == "reconstruction":
        return "the mean of each value of the features"
    what = "the most frequent class" if task == "multi_class" else "the mean label"
    return f"{answer:.4g}, {what}{of}"


def _metrics(summary: Mapping[str, Any]) -> Table:
    baseline, trivial = summary.get("baseline") or {}, summary.get("trivial") or {}
    errors = summary.get("errors") or {}
    margin = margins.heading(summary)
    of_value, of_change = (margins.of(summary, kind) for kind in ("metrics", "changes"))
    columns = header("metric | model#")
    columns += [Column("margin", margin, True)] if margin else []
    columns += [Column("error", "known to ±", True)] if errors else []
    if baseline:
        columns += [
            *header("baseline#: in production | change#"),
            *([Column("change_margin", margin, True)] if margin else []),
            Column("better", "", False),
        ]
    columns += [Column("trivial", "trivial", True)] if trivial else []
    rows = []
    for name, value in summary["overall"].items():
        row: list[Cell] = [name, value]
        row += [of_value.get(name)] if margin else []
        row += [errors.get(name)] if errors else []
        if baseline:
            before, change, better = _compared(name, value, baseline.get(name))
            row += [before, change, *([of_change.get(name)] if margin else []), better]
        row += [trivial.get(name)] if trivial else []
        rows.append(row)
    title = f"Over {counted(summary['examples'], 'example')} of the eval split"
    if (weighted := summary.get("weighted")) is not None:
        title += f", of weight {weighted:,.6g}"
    if queries := described.text(summary):
        title += f"; ranked by query: {queries}"
    return Table(title, columns, rows)


def _compared(name: str, value: float | None, before: float | None) -> list[Cell]:
    if value is None or before is None:
        return [before, None, ""]
    worse = badness(name, value) - badness(name, before)
    word = State("worse", "bad") if worse > 0 else State("better", "good")
    return [before, value - before, "same" if worse == 0 else word]


def _bounds(summary: Mapping[str, Any]) -> Table:
    order = sorted(
        summary["bounds"],
        key=lambda check: (
            check["ok"],
            bool(check.get("skipped")),
            check["slice"] != "overall",
        ),
    )
    columns = header("metric | slice | bound | received# | examples# | result | note")
    rows = [_bound(check) for check in order[:_BOUNDS]]
    failed = sum(not check["ok"] for check in summary["bounds"])
    title = f"Bounds: {failed} of {len(order)} {'fails' if failed == 1 else 'fail'}"
    return Table(title, columns, rows, max(0, len(order) - _BOUNDS))


def _bound(check: Mapping[str, Any]) -> list[Cell]:
    required, _ = apart(check["required"], check["received"])
    wanted = BOUNDS[check["bound"]].format(required)
    if check["bound"] == "better_than":
        wanted = f"better than the trivial model ({required})"
    result = State("holds", "good") if check["ok"] else State("fails", "bad")
    if check.get("skipped"):
        result = State("skipped", "plain")
    name: Cell = check["slice"]
    return [
        check["metric"],
        name if name == "overall" else Raw(str(name), "slice"),
        wanted,
        check["received"],
        check["examples"],
        result,
        check["note"] or "",
    ]


def slices(run: Run) -> Section | None:
    """Where the model does worst; None if nothing is sliced."""
    if not run.summary or not run.summary["slices"]:
        return None
    judged = dict.fromkeys(bound["metric"] for bound in run.summary["bounds"])
    others = (name for name in run.summary["overall"] if _has_worse(name))
    names = [*judged, *others]
    blocks: list[Block] = []
    for name in dict.fromkeys(names[: max(1, len(judged))]):
        ranked = results.ranked(run.summary, name)[:_WORST]
        if ranked:
            blocks.append(_worst(run.summary, name, ranked))
    blocks.append(_all_slices(run.summary))
    missing = run.summary.get("without_value") or {}
    if gaps := [(f"rows without {name}", n) for name, n in missing.items() if n]:
        blocks.append(Facts(gaps))
    return Section("slices", "Slices", blocks)


def _has_worse(name: str) -> bool:
    definition = METRICS.get(bare(name))
    return bool(definition and (definition.direction or definition.target is not None))


def _worst(summary: Mapping[str, Any], name: str, ranked: Sequence[Any]) -> Chart:
    columns = [
        *(Column("slice", "slice"), Column("value", name, True)),
        Column("examples", "examples", True),
    ]
    rows = [
        (Raw(slice_name, "slice"), piece["metrics"][name], piece["examples"])
        for slice_name, piece in ranked
    ]
    overall = summary["overall"][name]
    whole = "" if overall is None else f"; the line is {name} of all examples"
    return Chart(
        f"slices-{name.replace('_', '-')}",
        charts.dots("slice", "value", len(rows), title=name, line=overall),
        Table(f"Worst slices by {name}", columns, rows),
        f"The worst at the top, of at least {results.FEW_ROWS} examples{whole}.",
    )


def _all_slices(summary: Mapping[str, Any]) -> Table:
    names, margin = list(summary["overall"]), margins.heading_of_slices(summary)
    columns = header("slice | examples#")
    for name in names:
        columns.append(Column(name, name, True))
        columns += [Column(f"{name}_margin", margin, True)] if margin else []
    order = sorted(summary["slices"], key=lambda piece: -piece["examples"])
    rows = []
    for piece in order[:_SLICES]:
        around = margins.of(piece, "metrics")
        row: list[Cell] = [Raw(f"{piece['feature']}={piece['value']}", "slice")]
        row.append(piece["examples"])
        for name in names:
            row.append(piece["metrics"].get(name))
            row += [around.get(name)] if margin else []
        rows.append(row)
    left_out = max(0, len(order) - _SLICES)
    folded = len(rows) > 12
    return Table("All slices, the largest first", columns, rows, left_out, folded)


def warnings(run: Run) -> Section | None:
    """The warnings of all nodes; None without any."""
    columns = header("node | warning")
    rows = [(node, Raw(text, "warning")) for node, text in run.warnings]
    if not rows:
        return None
    return Section("warnings", "Warnings", [Table("Warnings by node", columns, rows)])


def graph(run: Run) -> Section | None:
    """The nodes with their times; None if none has started."""
    if not run.nodes:
        return None
    before = {
        node.name: ", ".join(
            each
            for each in node_ids.FOLLOWS.get(node.name, ())
            if any(other.name == each for other in run.nodes)
        )
        for node in run.nodes
    }
    columns = header("node | state | seconds# | rows# | follows")
    rows = [
        (node.name, state(node.state), node.seconds, node.rows, before[node.name])
        for node in run.nodes
    ]
    chart = Chart(
        "graph-times",
        charts.bars("node", "seconds", len(rows), title="seconds"),
        Table("Nodes and their times", columns, rows),
        "In the order of their starts. A cached node took its outputs from an earlier "
        "run.",
        unfolded=True,
    )
    cached = sum(node.state == "cached" for node in run.nodes)
    text = f"{counted(len(run.nodes), 'node')}, {cached} from the cache."
    return Section("graph", "Graph", [Paragraph(text), chart])

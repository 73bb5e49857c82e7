"""The output of `strategos run`, `runs` and `runs show`: live view and tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strategos.components import node_ids
from strategos.components.data_files import span_checks
from strategos.components.errors import first_line
from strategos.components.evaluation.by_query import described
from strategos.components.evaluation.intervals import margins
from strategos.components.evaluation.metrics import MEAN, METRICS, TRIVIAL, plain
from strategos.components.evaluation.outcome import summary as verdicts
from strategos.components.files import filesystems
from strategos.components.pusher import APPROVAL
from strategos.components.wording import counted, duration, first
from strategos.pipeline.view import results, terminal
from strategos.pipeline.view.live import LiveView

if TYPE_CHECKING:
    from strategos.pipeline.history.runs import NodeRun, Run

__all__ = ["LiveView", "history_table", "report"]

_WORST = 5  # Slices shown per metric that has bounds.
_FAILURES = 10  # Failed bounds shown.
_WARNINGS = 10  # Warnings shown.
_REMARK_WIDTH = 6  # Smallest width of the column for the cause of a failure.
# Effect of a node on a model with a good evaluation, by the run's outcome.
_ENDED = {
    "not blessed": "stopped the model",
    "stopped": "stopped the run",
    "interrupted": "was interrupted",
}
_STANDING = {"types", "trained", "trivial"}  # The same in run after run.
_VERBATIM = {
    "pushed",
    "serving",
    "predicted",
    "query it",
    "log",
}  # To be copied: never broken into lines.


def report(
    run: Run, *, next_step: str | None = None, console: Console | None = None
) -> None:
    """Prints one run: nodes, metrics, worst slices, verdict, next step.

    Args:
      run: The run, in full.
      next_step: The command that queries the model; shown if a model was pushed.
      console: Where to print; standard output by default.
    """
    console = console or terminal.console()
    console.print(headline(run, console))
    terminal.show(console, _nodes(run.nodes, console), indent=2)
    if run.gates:
        console.print()
        terminal.show(console, _gates(run.gates), indent=2)
    if run.summary:
        console.print()
        terminal.show(console, results.overall(run.summary), indent=2)
        worst = _worst_slices(run.summary)
        if worst.row_count:
            console.print()
            terminal.show(console, worst, indent=2)
    elif run.metrics:
        console.print()
        terminal.show(console, results.recorded(run.metrics), indent=2)
    console.print()
    for label, text in _ending(run, next_step):
        paragraph(console, label, text)


def brief(run: Run, last: Mapping[str, float] | None, next_step: str) -> None:
    """Prints how a run ended, without its nodes and slices, for one run of many.

    Args:
      run: The run, in full.
      last: Metrics of the run before, to show the change since; None without one.
      next_step: The command that queries the model; shown if a model was pushed.
    """
    console = terminal.console()
    console.print(headline(run, console))
    if run.summary:
        terminal.show(console, results.overall(run.summary, last), indent=2)
    elif metrics := measured(run):
        terminal.show(console, results.recorded(metrics, last), indent=2)
    for label, text in _ending(run, next_step):
        if label not in _STANDING:
            paragraph(console, label, text)


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run: of the Evaluator, or of Keras without one; by name."""
    return run.metrics or run.trainer.get("evaluation") or {}


def history_table(
    runs: Sequence[Run],
    decision: Mapping[str, Any] | None = None,
    console: Console | None = None,
) -> None:
    """Prints runs, one a line, in the given order, and the last decision to retrain.

    Args:
      runs: Runs without nodes, newest first.
      decision: From `decisions.last`, if there is one.
      console: Where to print; standard output by default.
    """
    console = console or terminal.console()
    if not runs:
        console.print("no runs yet")
    else:
        columns, metrics = _history_columns(runs), history_metrics(runs)
        shown = _fitting(metrics, columns, console.width)
        terminal.show(console, _history(runs, columns, shown, console))
        if hidden := metrics[len(shown) :]:
            console.print(terminal.hidden(hidden, console), soft_wrap=True)
    if decision:
        console.print()
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision["at"]))
        paragraph(console, "decided", f"{at}: {decision['reason']}")


def _history(
    runs: Sequence[Run],
    columns: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
    console: Console,
) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True)
    table.add_column("", no_wrap=True)
    for name, texts in columns.items():
        right = name == "took"
        width = max(len(text) for text in (name, *texts))
        table.add_column(
            name, no_wrap=True, min_width=width, justify="right" if right else "left"
        )
    for name in metrics:
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for index, run in enumerate(runs):
        cells = {name: texts[index] for name, texts in columns.items()}
        known = run.metrics
        style = terminal.style(run.outcome)
        table.add_row(
            terminal.symbol(run.outcome, console),
            *(Text(t, style if name == "outcome" else "") for name, t in cells.items()),
            *(terminal.number(known[n]) if n in known else "" for n in metrics),
            Text(remark(run), style="dim"),
        )
    return table


def _history_columns(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The columns that are shown at any width, by heading."""
    columns = {"run": [run.run_id for run in runs]}
    if len({run.pipeline for run in runs}) > 1:
        columns["pipeline"] = [run.pipeline for run in runs]
    columns["outcome"] = [run.outcome for run in runs]
    columns["took"] = [duration(run.duration) for run in runs]
    if any(run.pushed for run in runs):
        columns["pushed"] = [run.pushed[1] if run.pushed else "" for run in runs]
    return columns


def _fitting(
    metrics: Sequence[str], columns: Mapping[str, Sequence[str]], width: int
) -> list[str]:
    """The first of `metrics` that fit beside `columns` and leave room for a remark."""
    used = 3 + sum(max(map(len, (k, *v))) + 2 for k, v in columns.items())
    fitting = []
    for name in metrics[: max(1, width // 20 - 3)]:
        used += max(len(name), terminal.NUMBER_WIDTH) + 2
        if used + _REMARK_WIDTH <= width:
            fitting.append(name)
    return fitting


def headline(run: Run, console: Console) -> Text:
    """One line on a run: its pipeline, outcome, duration and id.

    Args:
      run: The run.
      console: Where it will be printed.
    """
    line = Text.assemble(
        terminal.symbol(run.outcome, console),
        " ",
        (run.pipeline, "bold"),
        "  ",
        (run.outcome, terminal.style(run.outcome)),
    )
    if run.duration is not None:
        line.append(f" in {duration(run.duration)}")
    line.append(f"  run {run.run_id}", style="dim")
    if run.runner:
        line.append(f", {run.runner} runner", style="dim")
    return line


def _nodes(nodes: Sequence[NodeRun], console: Console) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", min_width=8)
    table.add_column(no_wrap=True, justify="right")
    for node in nodes:
        cached = node.state == "cached"
        plain = node.state in ("cached", "complete")
        spent = "cached" if cached else duration(node.seconds)
        rows = "" if node.rows is None else f"{node.rows:,} rows"
        table.add_row(
            terminal.symbol(node.state, console),
            node.name,
            spent,
            rows if plain else Text(node.state, style=terminal.style(node.state)),
            style="dim" if cached else "",
        )
    return table


def _gates(checks: Sequence[Mapping[str, Any]]) -> Table:
    """For each gate of each new span, the check nearest to its bound."""
    table = results.grid("gates", "", "")
    table.columns[1].justify = table.columns[2].justify = "left"
    for check in span_checks.worst(checks):
        line = Text(span_checks.describe(check), style="" if check["ok"] else "red")
        table.add_row(check["gate"], f"span {check['span']}", line)
    return table


def _worst_slices(summary: Mapping[str, Any]) -> Table:
    """For each metric with bounds, the slices where the model does worst."""
    margin = margins.heading_of_slices(summary)
    extra = [margin] if margin else []
    table = results.grid("worst slices", "", "model", *extra, "examples")
    table.columns[1].justify = "left"
    broken = {(b["metric"], b["slice"]) for b in verdicts.failures(summary)}
    for metric in dict.fromkeys(bound["metric"] for bound in summary["bounds"]):
        for index, (name, piece) in enumerate(results.ranked(summary, metric)[:_WORST]):
            value = Text(terminal.number(piece["metrics"][metric]))
            value.stylize("red" if (metric, name) in broken else "")
            around = terminal.number(margins.of(piece, "metrics").get(metric))
            cells: list[Text | str] = [
                value,
                *([around] if margin else []),
                f"{piece['examples']:,}",
            ]
            table.add_row(metric if index == 0 else "", Text(name), *cells)
    empty = [""] * len(extra)
    small = sum(piece["examples"] < results.FEW_ROWS for piece in summary["slices"])
    if small and summary["bounds"]:
        few = f"under {results.FEW_ROWS} rows"
        table.add_row("left out", few, "", *empty, counted(small, "slice"))
    missing = summary.get("without_value") or {}  # absent in older summaries
    for feature, count in missing.items() if table.row_count else ():
        if count:
            what = Text(f"no {feature}")
            table.add_row("in no slice", what, "", *empty, f"{count:,}")
    return table


def _ending(run: Run, next_step: str | None) -> Iterator[tuple[str, Text | str]]:
    """Yields (label, text) for the outcome and for the next step."""
    if run.outcome == "running":
        yield "running", f"since {terminal.moment(run.started)} on {run.host or '?'}"
    if run.types:
        yield "types", run.types
    if run.trainer:
        yield "trained", results.trained(run.trainer)
        if falling := results.still_falling(run.trainer.get("history")):
            yield "epochs", falling
    if run.reason:
        yield "why", run.reason
    yield from _warnings(run)
    yield from _verdict(run)
    judged = run.summary is not None and run.failed_node == node_ids.EVALUATION_GATE
    if run.cause and not judged:  # else the verdict contains the cause
        yield run.failed_node or run.outcome, run.cause
    if run.pushed:
        reused = any(
            n.name == node_ids.PUSHER and n.state == "cached" for n in run.nodes
        )
        label = run.slot or ("serving" if reused else "pushed")
        yield label, filesystems.short(run.pushed[0])
        if run.slot == APPROVAL:
            words = ["strategos models approve|veto", run.pushed[1]]
            decide = " ".join([*words, filesystems.short(run.config or "")]).strip()
            yield "decide", Text(decide, style="bold")
        elif next_step and not run.slot:
            yield "query it", Text(next_step, style="bold")
    if run.predicted:
        yield "predicted", filesystems.short(run.predicted)
    ended_badly = run.outcome in ("failed", "stopped", "interrupted")
    if run.log and (ended_badly or not next_step):
        yield "log", filesystems.short(run.log)


def _warnings(run: Run) -> Iterator[tuple[str, Text | str]]:
    lines = [f"{node}: {text}" if node else text for node, text in run.warnings]
    for line in first(list(map(first_line, lines)), _WARNINGS):
        yield "warning", Text(line, "yellow")


def _trivial(summary: Mapping[str, Any]) -> Iterator[tuple[str, Text | str]]:
    """Yields the meaning of the column `trivial`, e.g. the mean of the label."""
    parts = []
    for task, label, answer in verdicts.trivial_answers(summary):
        kind = TRIVIAL.get(task, MEAN).format(label)
        what = f"{kind}, {answer:.4g},"
        if task == "multi_label":
            what = f"{kind} ({answer:.4g} on average)"
        if task == "reconstruction":
            what = kind
        parts.append(what)
    if parts:
        yield "trivial", f"predicts {' '.join(parts)} for all rows"


def _verdict(run: Run) -> Iterator[tuple[str, Text | str]]:
    if run.summary is None:
        return
    yield from _trivial(run.summary)
    if queries := described.text(run.summary):
        yield "queries", queries
    faults = verdicts.faults(run.summary)
    if not faults:
        reason, node = run.summary["reason"], run.failed_node
        # On a cluster, steps of reports may fail; BulkInferrer follows the push.
        if run.outcome == "blessed" or run.pushed:
            node = None
        if node:  # after the evaluation
            reason = f"{node} {_ENDED.get(run.outcome, 'failed')}; {reason}"
        good = ("not pushed", "bold red") if node else ("blessed", "green")
        yield "verdict", Text.assemble(good, f": {reason}")
        return
    failed, count = len(verdicts.failures(run.summary)), len(run.summary["bounds"])
    broken = f": {failed} of {count} bounds fail{'s' * (failed == 1)}" if failed else ""
    yield "verdict", Text.assemble(("not blessed", "bold red"), broken)
    for line in first(faults, _FAILURES):
        yield "", line
    if run.summary.get("incomparable"):  # absent in older summaries
        yield "", verdicts.WITHOUT_BASELINE


def paragraph(console: Console, label: str, text: Text | str) -> None:
    """Prints a labelled paragraph, wrapped beside its label in a terminal.

    Args:
      console: Where to print.
      label: The label.
      text: The paragraph; its lines stay lines.
    """
    width = max(10, len(label))
    if isinstance(text, str):
        indent = "" if console.is_terminal else " " * (width + 3)
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        text = Text(f"\n{indent}".join(lines))
    line = Text.assemble("  ", (f"{label:{width}} ", "dim"), text)
    if not console.is_terminal or label in _VERBATIM:
        console.print(line, soft_wrap=True)
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=width, style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(label, text)
    terminal.show(console, table, indent=2)


def history_metrics(runs: Sequence[Run]) -> list[str]:
    """The metrics of the runs: the most frequent first, then by the table's order."""
    counts = Counter(name for run in runs for name in run.metrics)
    # ML Metadata returns properties in no order; the table of metrics has one.
    rank = {name: place for place, name in enumerate(METRICS)}
    return sorted(counts, key=lambda name: (-counts[name], rank.get(plain(name), 99)))


def remark(run: Run) -> str:
    """The cause of a run's failure in one line, else the reason of its start or ""."""
    if run.failed_node:
        stopped = run.outcome in ("stopped", "not blessed")
        where = "" if stopped else f"{run.failed_node}: "
        return where + first_line(run.cause)
    return run.reason or ""

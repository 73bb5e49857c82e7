"""Results of whole runs as tables, and as the page and plot in docs/."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
import plot

Results = dict[int, dict[str, list[dict[str, Any]]]]
"""All runs by number of rows and side."""

Runs = Sequence[Mapping[str, Any]]

NAMES = {
    "strategos": "Strategos, two workers",
    "strategos-1": "Strategos, one worker",
    "strategos-core": "Strategos, one worker on one core",
    "flink": "Strategos, Flink, two slots",
    "stock": "TFX's own components",
    "script": "plain script",
    "floor": "floor",
}
_OURS = ("strategos-1", "strategos")
_FIGURES = (("CPU s", "cpu", 1.0), ("wall s", "wall", 1.0), ("peak MB", "memory", 1e6))
_SPREAD = ("ExampleGen", "StatisticsGen", measure.OUTPUT, "Evaluator")
_TEXT = """\
# Benchmarks

What `make bench` (`benchmarks/whole_run`) measures: whole runs of the flights example,
from CSV files to a model with its metrics by slice and a SavedModel. Rows are drawn
with replacement from those of the example, in twelve files.

- **Strategos**: `strategos run`, all nodes, with one or two workers on its data
  (`run.engine.workers`), threads that go on in processes; with one worker on one core
  (`taskset`), because TensorFlow and gzip have threads of their own; on Flink, a
  cluster that the run starts on the same machine (`run.engine.runner: flink`). The CPU
  time of its workers is not counted in full.
- **TFX's own components**: the same pipeline of stock components, on LocalDagRunner and
  Beam's in-process runner.
- **plain script**: pyarrow, NumPy and Keras 3: the same features, network, steps and
  metrics, without lineage, validation, cache or gates.
- **floor**: importing pyarrow and TensorFlow, reading the files, and the steps of the
  training on one batch in memory.

CPU is user and system seconds of all processes; memory is the peak of their
proportional set sizes together. Each figure is the median of its runs, on a machine
with {cores} cores that did nothing else.

![CPU seconds and peak memory by number of rows](benchmarks.svg)

{cluster}

{tables}
"""


def read(file: Path) -> Results:
    """The results in a file of JSON lines.

    Raises:
      SystemExit: The file is missing.
    """
    if not file.exists():
        raise SystemExit(f"{file}: missing; run without --page first")
    found: Results = defaultdict(lambda: defaultdict(list))
    for line in file.read_text().splitlines():
        each = json.loads(line)
        found[each["rows"]][each["side"]].append(each)
    return dict(sorted(found.items()))


def write(found: Results, folder: Path) -> None:
    """Writes the page and its plot to `folder`."""
    text = _TEXT.format(
        cores=os.cpu_count(), tables=tables(found), cluster=_cluster(found)
    )
    (folder / "benchmarks.md").write_text(text)
    panels = [
        plot.Panel(f"{name} by rows", _curves(found, key, unit))
        for name, key, unit in _FIGURES
        if key != "wall"
    ]
    (folder / "benchmarks.svg").write_text(plot.draw(panels))


def _cluster(found: Results) -> str:
    """Wall time of a cluster, relative to one and to two workers."""
    parts = {
        rows: [
            _median(sides["flink"], "wall") / _median(sides[side], "wall")
            for side in _OURS
        ]
        for rows, sides in found.items()
        if {"flink", *_OURS} <= sides.keys()
    }
    if not parts:
        return "Flink was not measured."
    each = [
        f"At {rows:,} rows {one:.2f} of that of one worker, {two:.2f} of that of two."
        for rows, (one, two) in parts.items()
    ]
    pays = [rows for rows, (one, _) in parts.items() if one <= 1]
    where = f"from {min(pays):,} rows on" if pays else "at none of these sizes"
    text = (
        f"Wall time on Flink with two slots. {' '.join(each)} Against one worker it "
        f"pays {where}."
    )
    if all(two > 1 for _, two in parts.values()):
        text += (
            " On one machine, as many workers as slots are faster: a cluster pays "
            "where it has more cores than one machine."
        )
    return text


def tables(found: Results) -> str:
    """The medians as Markdown: of whole runs, then by node."""
    lines = [
        *_of_runs(found),
        "",
        *_of_nodes(found),
        *_of_two_workers(found, "strategos-core", "one core"),
        "",
        *_of_two_workers(found, "strategos-1", "two cores"),
    ]
    return "\n".join(lines).rstrip()


def _of_runs(found: Results) -> Iterator[str]:
    titles = [name for name, _, _ in _FIGURES]
    yield from _head(["rows", "", *titles, "CPU x script", "runs"])
    for rows, sides in found.items():
        script = sides.get("script")
        for side in _ordered(sides):
            runs = sides[side]
            cells = [_median(runs, key) / unit for _, key, unit in _FIGURES]
            ratio = _median(runs, "cpu") / _median(script, "cpu") if script else None
            shown = "" if ratio is None else f"{ratio:.2f}"
            yield _line(
                [f"{rows:,}", NAMES[side], *map(_round, cells), shown, len(runs)]
            )


def _of_nodes(found: Results) -> Iterator[str]:
    """CPU s / wall s / peak MB of each node that took a tenth of a second."""
    columns = [
        (rows, side, runs)
        for rows, sides in found.items()
        for side, runs in ((each, sides[each]) for each in _ordered(sides))
        if runs[0]["nodes"]
    ]
    for side in NAMES:
        mine = [(rows, runs) for rows, of, runs in columns if of == side]
        if not mine:
            continue
        yield f"{NAMES[side]}, CPU s / wall s / peak MB by node:"
        yield ""
        yield from _head(["node", *(f"{rows:,} rows" for rows, _ in mine)])
        for node in mine[-1][1][0]["nodes"]:
            cells = [_of_node(runs, node) for _, runs in mine]
            if any(cells):
                yield _line([node, *cells])
        yield ""


def _of_two_workers(found: Results, one: str, cores: str) -> Iterator[str]:
    """Wall time with two workers relative to one, where both were measured."""
    both = {
        rows: (sides["strategos"], sides[one])
        for rows, sides in found.items()
        if {"strategos", one} <= sides.keys()
    }
    if not both:
        return
    yield f"Wall time with two workers, in parts of that with one on {cores}:"
    yield ""
    yield from _head(["node", *(f"{rows:,} rows" for rows in both)])
    for node in _SPREAD:
        yield _line([node, *(_ratio(*sides, node) for sides in both.values())])


def _ratio(two: Runs, one: Runs, node: str) -> str:
    walls = [
        [each["nodes"][node]["wall"] for each in runs if node in each["nodes"]]
        for runs in (two, one)
    ]
    if not all(walls):
        return ""
    ours, theirs = map(statistics.median, walls)
    return f"{ours / theirs:.2f}"


def _of_node(runs: Runs, node: str) -> str:
    costs = [each["nodes"][node] for each in runs if node in each["nodes"]]
    if not costs or _median(costs, "wall") < 0.1:
        return ""
    return " / ".join(_round(_median(costs, key) / unit) for _, key, unit in _FIGURES)


def _curves(found: Results, key: str, unit: float) -> dict[str, plot.Curve]:
    return {
        NAMES[side]: [
            (rows, _median(sides[side], key) / unit)
            for rows, sides in found.items()
            if side in sides
        ]
        for side in NAMES
        if any(side in sides for sides in found.values())
    }


def _ordered(sides: Iterable[str]) -> list[str]:
    return [side for side in NAMES if side in set(sides)]


def _median(runs: Iterable[Mapping[str, Any]], key: str) -> float:
    return statistics.median(each[key] for each in runs)


def _round(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _head(titles: Sequence[str]) -> Iterator[str]:
    yield _line(titles)
    yield _line(["---"] * len(titles))


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"

"""`strategos init` and `strategos data`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from strategos.components import node_ids
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.errors import BadInputError, ExitCode, UserError
from strategos.components.wording import counted, cut
from strategos.pipeline import commands
from strategos.pipeline.config import MAIN_FILE, loading
from strategos.pipeline.config.types import name_after
from strategos.pipeline.init import boosted_trees, features, first_fit, label, sample
from strategos.pipeline.init.columns import Column
from strategos.pipeline.init.workload import Workload
from strategos.pipeline.root import boosted_trees as kept
from strategos.pipeline.view import terminal

_EXAMPLES = 3  # values of a column that are shown


def init(arguments: argparse.Namespace) -> int:
    """`strategos init`: writes a workload for a table, and trains it once.

    Args:
      arguments: The parsed command line.

    Raises:
      UserError: The data or the label cannot be used, or the folder exists.
    """
    if not arguments.label:
        raise BadInputError(
            "no column to predict is named",
            key="--label",
            remedy="Add `--label COLUMN`. A workload without a label is written by "
            "hand: docs/configuration/reconstruction.md.",
        )
    name = arguments.name or _name_of(arguments.data)
    if name_after(name) != name:
        raise BadInputError(
            key="--name",
            received=repr(name),
            expected="lower-case letters, digits and `-`, first a letter, at most 63",
            remedy=f"E.g. --name {name_after(name)}.",
        )
    if arguments.baseline:
        if arguments.no_fit:
            raise BadInputError("--baseline needs the first fit: leave out --no-fit")
        boosted_trees.require()
    folder = Path(name)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BadInputError(
            f"{folder} exists, and is no empty folder",
            key="--name",
            remedy="Choose another name, or remove it.",
        )
    workload = _workload(arguments, name, folder)
    workload.write()
    _print_features(workload)
    if arguments.no_fit:
        return ExitCode.DONE
    print(f"{folder}: written; the first fit says which bound to set", file=sys.stderr)
    _fit(workload, arguments.baseline)
    print(f"Run it: cd {shlex.quote(str(folder))} && strategos run")
    return ExitCode.DONE


def data(arguments: argparse.Namespace) -> int:
    """`strategos data`: shows types, ranges, missing values and doubts of columns.

    Args:
      arguments: The parsed command line.

    Raises:
      UserError: The data cannot be read.
    """
    rows = sample.read(arguments.data)
    columns = [Column(rows, name) for name in rows.columns]
    facts = [_facts(column) for column in columns]
    if arguments.json:
        result = {"rows": rows.rows, "all_rows": rows.is_whole, "columns": facts}
        print(json.dumps(result, ensure_ascii=False))
        return ExitCode.DONE
    part = "" if rows.is_whole else ", a part of the data"
    print(f"{counted(rows.rows, 'row')}{part}, {counted(len(facts), 'column')}\n")
    titles = ["column", "type", "missing", "distinct", "range or examples", "doubt"]
    cells = [
        [
            _on_a_line(fact["name"]),
            fact["type"],
            f"{fact['missing'] / max(1, rows.rows):.1%}" if fact["missing"] else "",
            f"{fact['distinct']:,}",
            cut(_range(fact), 40),
            fact["doubt"],
        ]
        for fact in facts
    ]
    _print_table(titles, cells)
    return ExitCode.DONE


def _name_of(path: str) -> str:
    """A name for a workload: after the file, or its folder if that is a pattern."""
    names = [part.split(".")[0] for part in Path(path).absolute().parts]
    fixed = [name for name in names if name and not re.search(r"[*?{\[]", name)]
    return name_after(fixed[-1] if fixed else "")


def _workload(arguments: argparse.Namespace, name: str, folder: Path) -> Workload:
    rows = sample.read(arguments.data)
    columns = [Column(rows, each) for each in rows.columns]
    target = label.find(columns, arguments.label)
    texts, nulls = _spelled(target)
    if texts or nulls:
        rows = sample.read(arguments.data, texts, nulls)
        columns = [Column(rows, each) for each in rows.columns]
        target = label.find(columns, arguments.label)
    proposed = features.propose(columns, target)
    if not any(each.name for each in proposed):
        raise BadInputError(
            "no column says anything about the label: "
            + "; ".join(f"`{each.column.name}`: {each.reason}" for each in proposed),
            remedy="Add columns that are known before the label is.",
        )
    origin = f"strategos init {shlex.quote(arguments.data)}"
    origin += f" --label {shlex.quote(arguments.label)}"
    return Workload(name, folder, origin, rows, columns, target, proposed)


def _spelled(target: label.Label) -> tuple[list[str], list[str]]:
    """Columns to read as text, and texts that stand for a missing value.

    Numbers that name classes are read as text. A label such as `NA` is none.
    """
    column = target.column
    texts = [column.name] if target.is_text and not column.is_text else []
    nulls = [each for each in DEFAULT_NULL_VALUES if each in column.counts]
    return texts, nulls if column.is_text else []


def _print_features(workload: Workload) -> None:
    target = workload.label
    print(f"{target.column.name}: {target.task}, {target.reason}\n")
    _print_table(
        ["column", "feature", "why"],
        [
            [_on_a_line(each.column.name), each.name or "left out", each.reason]
            for each in workload.features
        ],
    )
    print()


def _fit(workload: Workload, baseline: bool) -> None:
    """Trains once, and writes the bound that this fit justifies.

    Args:
      workload: The workload.
      baseline: Whether trees are trained, too.

    Raises:
      UserError: A node fails.
    """
    path = str(workload.folder / MAIN_FILE)
    result = commands.run_to(node_ids.EVALUATOR, path)
    summary: dict[str, Any] = result.run.summary or {}
    if not summary:
        raise UserError(f"the first fit ended without an evaluation: {result.run.log}")
    metrics, trivial = result.run.metrics, summary["trivial"]
    bound = first_fit.bound(workload.label, metrics, trivial, summary["examples"])
    if baseline:
        bound = dataclasses.replace(bound, trees=_trees(workload, path))
    workload.set_bound(bound)
    print(f"{workload.main_metric}: {bound.why}; bound {bound}")
    if not bound.holds:
        print(
            "note: this fit cannot be told from a model that answers the same for all "
            "rows, so its model is not blessed. More rows or better columns help."
        )


def _trees(workload: Workload, pipeline: str) -> float:
    """Trains trees on the rows of the first fit, and records their metric."""
    print(f"training {kept.NAME} on the same rows", file=sys.stderr)
    config = loading.load(pipeline).config
    made = Path(config.run.root, config.name, node_ids.EXAMPLE_GEN, "examples")
    examples = str(max(made.iterdir(), key=lambda path: int(path.name)))
    used = [each.column.name for each in workload.features if each.name]
    value = boosted_trees.metric(examples, workload.label, used)
    trees = kept.Trees(workload.label.column.name, workload.main_metric, value)
    kept.record(config.run.root, examples, trees)
    return value


def _facts(column: Column) -> dict[str, Any]:
    is_number = column.is_number and not column.is_list and len(column.numbers)
    return {
        "name": column.name,
        "type": column.kind.name if column.kind else "no value",
        "missing": column.missing,
        "distinct": column.distinct,
        "range": [float(column.numbers.min()), float(column.numbers.max())]
        if is_number
        else None,
        "examples": [str(each) for each in list(column.counts)[:_EXAMPLES]],
        "doubt": features.suspicion(column) or features.gaps(column),
    }


def _on_a_line(name: str) -> str:
    return cut(" ".join(name.split()), 30)


def _range(fact: dict[str, Any]) -> str:
    if fact["range"]:
        low, high = fact["range"]
        return f"{low:.6g} to {high:.6g}"
    return ", ".join(fact["examples"])


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    terminal.show(terminal.console(), table)

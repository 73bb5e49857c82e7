"""Commands that begin a workload."""

from __future__ import annotations

import argparse

from strategos.pipeline.command_line.arguments import Commands


def add(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Adds these commands.

    Args:
      commands: The commands of `strategos`.
      shared: The options of all commands.
    """
    table = argparse.ArgumentParser(add_help=False)
    table.add_argument(
        "data", metavar="DATA", help="a file, a folder of files, or a pattern in quotes"
    )
    init = commands.add_parser(
        "init",
        parents=[shared, table],
        help="write a workload for a table, and train it once",
    )
    init.add_argument(
        "--label", metavar="COLUMN", help="the column to predict; required"
    )
    init.add_argument(
        "--name",
        metavar="NAME",
        help="name of the pipeline and its new folder (default: after the data)",
    )
    init.add_argument(
        "--no-fit",
        action="store_true",
        help="do not train: the YAML has no bound on the main metric",
    )
    init.add_argument(
        "--baseline",
        action="store_true",
        help="also train gradient-boosted trees (scikit-learn) on the same rows",
    )
    data = commands.add_parser(
        "data",
        parents=[shared, table],
        help="show types, ranges, missing values and doubtful columns of a table",
    )
    data.add_argument("--json", action="store_true", help="print JSON")

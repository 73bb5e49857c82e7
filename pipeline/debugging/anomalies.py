"""`strategos anomalies`: the rows with values that the schema forbids."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode
from strategos.components.wording import counted
from strategos.pipeline import commands

if TYPE_CHECKING:
    from strategos.components.data_files.findings.forbidden import Forbidden
    from strategos.pipeline.config.sections import Config


def anomalies(arguments: argparse.Namespace) -> int:
    """`strategos anomalies`: searches the data that a run would read.

    Args:
      arguments: The parsed command line.

    Returns:
      STOPPED if rows were found.

    Raises:
      UserError: There is no `schema.file`, or the data cannot be read.
    """
    config = commands.load(arguments).config
    if not config.schema_.file:
        raise BadInputError(
            "no schema file is set: a schema that a run infers forbids nothing that "
            "its training rows have",
            key="schema.file",
            remedy="Name a schema, such as that of a past run (`strategos lineage`).",
        )
    if arguments.rows and Path(arguments.rows).suffix in (".yaml", ".yml"):
        raise BadInputError(
            "the file of rows would replace a YAML file",
            key="--rows",
            received=arguments.rows,
            remedy="Name the pipeline first: `strategos anomalies PIPELINE_YAML "
            "--rows FILE`.",
        )
    with tempfile.TemporaryDirectory() as folder:
        forbidden = search(config, folder)
        if arguments.rows:
            parts = sorted(Path(folder).rglob("*.jsonl"))
            _write(Path(arguments.rows), parts)
    if arguments.json:
        about = {
            "features": forbidden.counts,
            "unreadable_rows": forbidden.unreadable.rows,
        }
        print(json.dumps({**about, "first": list(forbidden.shown())}, indent=2))
    else:
        _print(forbidden, arguments.rows)
    rows = forbidden.unreadable.rows + sum(forbidden.counts.values())
    return ExitCode.STOPPED if rows else ExitCode.DONE


def search(config: Config, folder: str) -> Forbidden:
    """Searches the selected spans; rows that cannot be read count, too.

    Args:
      config: The effective settings, with `schema.file`.
      folder: Folder for the rows, as JSON lines.

    Raises:
      UserError: The data cannot be read.
    """
    from strategos.components import plugins
    from strategos.components.data_files import columns, shards
    from strategos.components.data_files.findings.forbidden import Forbidden, Search
    from strategos.components.data_files.values.numerals import Nulls
    from strategos.components.schema_file import read_schema
    from strategos.components.shards.engine import Engine

    plugins.use(str(config.folder), config.plugins)
    schema_file = str(config.schema_.file)
    reading = dataclasses.replace(config.data.reading, on_bad_row="quarantine")
    files = shards.open_files(config.data.listing().chosen, reading)
    kinds = columns.from_schema([source for _, source in files], schema_file)
    runner = shards.ShardRunner(Engine(), folder)
    nulls = Nulls(tuple(config.data.null_values), config.data.reading.csv.decimal)
    schema = read_schema(schema_file).SerializeToString()
    work = Search(schema, tuple(kinds), nulls, folder)
    forbidden: Forbidden = runner.fold(
        runner.cut(config.data.examples, files), work, Forbidden.merge
    )
    return forbidden


def _write(target: Path, parts: Sequence[Path]) -> None:
    with target.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())


def _print(forbidden: Forbidden, target: str | None) -> None:
    for name, count in sorted(forbidden.counts.items()):
        print(f"`{name}`: {counted(count, 'value')} that the schema forbids")
    if forbidden.unreadable.rows:
        print(f"{counted(forbidden.unreadable.rows, 'row')} that cannot be read")
    for line in forbidden.shown():
        print(f"  {line}")
    if not forbidden.counts and not forbidden.unreadable.rows:
        print("The schema forbids no value of the data.")
    elif target:
        print(f"{target}: all of them", file=sys.stderr)
    else:
        print("`--rows FILE` writes all of them", file=sys.stderr)

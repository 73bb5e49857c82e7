"""Times the commands that read the history of a root with thousands of runs.

    python benchmarks/history.py examples/digits --runs 10000

Copies the workload, runs it once, and repeats that run in the copy's SQLite file with
new ids, older times and lower versions. Prints the seconds and the CPU seconds of each
command, of the quickest of three calls. Only records are repeated: all artifacts share
the folders of the first run. With `--mariadb`, the records are copied to a MariaDB
server, where each run has a lease, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMAS = Path(__file__).parents[1] / "schemas"
STEP = 1000
"""Distance of the ids of two runs: more than a run has of anything."""

_HOUR = 3600
_IDS = {
    "Execution": ("id",),
    "ExecutionProperty": ("execution_id",),
    "Artifact": ("id",),
    "ArtifactProperty": ("artifact_id",),
    "Event": ("id", "artifact_id", "execution_id"),
    "EventPath": ("event_id",),
    "Context": ("id",),
    "ContextProperty": ("context_id",),
    "ParentContext": ("context_id",),
    "Association": ("id", "context_id", "execution_id"),
    "Attribution": ("id", "context_id", "artifact_id"),
}
"""Columns that are renumbered, by ML Metadata's table."""

_QUICK = (
    ("runs",),
    ("runs", "show"),
    ("models",),
    ("retrain", "--dry-run"),
    ("retrain", "--if-due"),
)
_SLOW = (("clean",), ("run",))
_NAMED = ("Artifact", "Execution", "Context")


def repeat(database: Path, runs: int) -> None:
    """Repeats the only run of a database, which becomes the oldest.

    Args:
      database: An SQLite file of ML Metadata.
      runs: Number of runs afterwards.
    """
    with sqlite3.connect(database) as connection:
        shared = _shared_contexts(connection)
        connection.execute("CREATE TEMP TABLE nth (i INTEGER)")
        numbers = ((i,) for i in range(1, runs))
        connection.executemany("INSERT INTO nth VALUES (?)", numbers)
        for table, ids in _IDS.items():
            _repeat_table(connection, table, ids, shared)
        _spread(connection, runs)


def _shared_contexts(connection: sqlite3.Connection) -> str:
    """Ids of the contexts that all runs share: of the pipeline and of its nodes."""
    query = (
        "SELECT Context.id FROM Context JOIN Type ON Type.id = Context.type_id "
        "WHERE Type.name IN ('pipeline', 'node')"
    )
    return ", ".join(str(id) for (id,) in connection.execute(query))


def _repeat_table(
    connection: sqlite3.Connection, table: str, ids: tuple[str, ...], shared: str
) -> None:
    rows = connection.execute(f"PRAGMA table_info({table})")
    columns = [name for _, name, *_ in rows]
    values = []
    for name in columns:
        value = name
        if name in ids:
            value = f"{name} + i * {STEP}"
            if name == "context_id":
                value = f"CASE WHEN {name} IN ({shared}) THEN {name} ELSE {value} END"
        elif name == "name" and table in _NAMED:
            value = "name || '-' || i"
        values.append(value)
    only = ""
    if table in ("Context", "ContextProperty", "ParentContext"):
        only = f"WHERE {ids[0]} NOT IN ({shared})"
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) "
        f"SELECT {', '.join(values)} FROM {table}, nth {only}"
    )


def _spread(connection: sqlite3.Connection, runs: int) -> None:
    """Gives the runs times an hour apart, and their pushed versions numbers."""
    age = f"({runs} - 1 - context_id / 1000) * {_HOUR}"
    connection.execute(
        f"UPDATE ContextProperty SET double_value = double_value - {age} "
        "WHERE name IN ('started', 'finished')"
    )
    older = f"{runs} - 1 - artifact_id / 1000"
    for table in _NAMED:
        since = f"({runs} - 1 - id / 1000) * {_HOUR * 1000}"
        connection.execute(
            f"UPDATE {table} SET create_time_since_epoch = create_time_since_epoch - "
            f"{since}, last_update_time_since_epoch = last_update_time_since_epoch - "
            f"{since}"
        )
    for name in ("pushed_version", "pushed_destination"):
        digits = 10  # of a version: Unix seconds
        connection.execute(
            "UPDATE ArtifactProperty SET string_value = "
            f"substr(string_value, 1, length(string_value) - {digits}) || "
            f"(substr(string_value, -{digits}) - ({older})) WHERE name = '{name}'"
        )


def copy(workload: Path, folder: Path) -> Path:
    """Copies a workload, with gates if its data are in spans; the path of its YAML."""
    target = folder / "examples" / workload.name
    ignored = shutil.ignore_patterns("runs", "serving")
    shutil.copytree(workload, target, ignore=ignored)
    shutil.copytree(SCHEMAS, folder / "schemas")
    yaml = target / "pipeline.yaml"
    if "{SPAN}" in yaml.read_text():
        yaml.write_text(f"{yaml.read_text()}gates: {{}}\n")
    return yaml


def measure(command: list[str]) -> tuple[float, float]:
    """Runs a command; returns its seconds and CPU seconds.

    Args:
      command: The program and its arguments.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    spent = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", help="folder with a pipeline.yaml")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--slow", action="store_true", help="also clean and run")
    parser.add_argument("--mariadb", action="store_true", help="records on a server")
    arguments = parser.parse_args()
    strategos = str(Path(sys.executable).with_name("strategos"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        yaml = copy(Path(arguments.workload), Path(folder))
        measure([strategos, "run", str(yaml)])
        database = yaml.parent / "runs" / "metadata.sqlite"
        repeat(database, arguments.runs)
        size = database.stat().st_size
        print(f"{arguments.runs:,} runs, {size / 1e6:,.0f} MB")
        with contextlib.ExitStack() as stack:
            if arguments.mariadb:
                import mariadb_server

                name = Path(arguments.workload).name
                place = Path(folder), database, arguments.runs, name
                url = stack.enter_context(mariadb_server.filled(*place))
                yaml.write_text(f"{yaml.read_text()}run: {{metadata: '{url}'}}\n")
            time_commands(strategos, yaml, arguments.slow)


def time_commands(strategos: str, yaml: Path, slow: bool) -> None:
    """Prints the times of each command.

    Args:
      strategos: The program.
      yaml: The pipeline.
      slow: Whether to call `clean` and `run`, too, once each.
    """
    for command in (_QUICK + _SLOW) if slow else _QUICK:
        called = [strategos, *command, str(yaml)]
        spent, cpu = min(measure(called) for _ in range(1 if command in _SLOW else 3))
        print(f"{' '.join(command):24} {spent:6.2f} s  CPU {cpu:6.2f} s", flush=True)


if __name__ == "__main__":
    main()

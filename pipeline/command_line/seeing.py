"""Commands that show past runs, and this machine."""

from __future__ import annotations

import argparse

from strategos.pipeline.command_line import arguments
from strategos.pipeline.command_line.arguments import READ, Commands, count, port
from strategos.pipeline.config import MAIN_FILE


def add(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Adds these commands.

    Args:
      commands: The commands of `strategos`.
      shared: The options of all commands.
    """
    root, place = arguments.root(), arguments.place()
    runs = commands.add_parser(
        "runs", parents=[shared, place], help="list past runs and how they ended"
    )
    runs.add_argument(
        "show_or_pipeline",
        nargs="*",
        metavar="[show [RUN] | compare [A [B]]] [PIPELINE_YAML]",
        help="`show` for one run in full (default: the last); `compare` for what "
        "changed between two runs, and what it did (default: the last two); the "
        f"pipeline (default: ./{MAIN_FILE}, else that of the last root used)",
    )
    runs.add_argument(
        "--limit", type=count, default=20, metavar="N", help="at most N (default 20)"
    )
    runs.add_argument(
        "--slices",
        action="store_true",
        help="all slices and bounds in `show --json`, not 100 of each",
    )
    report = commands.add_parser(
        "report", parents=[shared, root], help="write a page on a run, and open it"
    )
    report.add_argument(
        "run_or_pipeline",
        nargs="*",
        metavar="[RUN] [PIPELINE_YAML]",
        help="the run (default: the last); the pipeline (default: "
        f"./{MAIN_FILE}, else that of the last root used)",
    )
    report.add_argument(
        "--compare",
        metavar="RUN",
        help="another run: also report what changed since, and what it did",
    )
    report.add_argument(
        "--open", action="store_true", help="open the page in the browser"
    )
    report.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write (default: report.html in the run's folder of the "
        "root; with --compare, report-since-RUN.html; with --static, "
        "report-static.html)",
    )
    report.add_argument(
        "--redact",
        action="store_true",
        help="leave out values of the data, and messages that may quote them",
    )
    report.add_argument(
        "--static",
        action="store_true",
        help="draw the charts into the page, which then has no scripts, for mail and "
        "print; needs strategos[static]",
    )
    ui = commands.add_parser(
        "ui", parents=[shared, root], help="show runs and models as pages in a browser"
    )
    ui.add_argument("pipeline", **READ)
    ui.add_argument(
        "--port", type=port, default=8420, help="0 for any free port (default: 8420)"
    )
    ui.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, for this machine only); others "
        "need a token",
    )
    ui.add_argument(
        "--token",
        metavar="TOKEN",
        help="what browsers must give, at least 16 characters; hidden from other users "
        "of this machine only in the variable STRATEGOS_UI_TOKEN",
    )
    ui.add_argument("--open", action="store_true", help="open the browser")
    lineage = commands.add_parser(
        "lineage", parents=[shared, place], help="show what a model was made from"
    )
    lineage.add_argument(
        "model", metavar="MODEL", help="a pushed folder, version, run or artifact id"
    )
    lineage.add_argument("pipeline", **READ)
    reproduce = commands.add_parser(
        "reproduce",
        parents=[shared, place],
        help="make the model of a run again, and compare it weight by weight",
    )
    reproduce.add_argument(
        "model", metavar="RUN|VERSION", help="a run, or a pushed version"
    )
    reproduce.add_argument("pipeline", **READ)
    reproduce.add_argument(
        "--to", metavar="DIR", help="a new folder (default: reproduced-RUN)"
    )
    bisect = commands.add_parser(
        "bisect",
        parents=[shared, place],
        help="find the change between two runs that made a metric worse",
    )
    bisect.add_argument("good", metavar="GOOD", help="the run with the better metric")
    bisect.add_argument("bad", metavar="BAD", help="the run with the worse metric")
    bisect.add_argument("pipeline", **READ)
    bisect.add_argument(
        "--metric",
        metavar="METRIC",
        help="the metric (default: the first that is worse)",
    )
    bisect.add_argument(
        "--runs",
        type=count,
        default=20,
        metavar="N",
        help="at most N runs between the two (default 20)",
    )
    bisect.add_argument(
        "--to",
        metavar="DIR",
        help="a new folder, or that of a bisection to go on with (default: "
        "bisected-GOOD-BAD)",
    )
    tensorboard = commands.add_parser(
        "tensorboard", parents=[shared, root], help="show the logs of the last runs"
    )
    tensorboard.add_argument("pipeline", **READ)
    tensorboard.add_argument("--run", metavar="RUN", help="only the logs of this run")
    tensorboard.add_argument(
        "--dump",
        metavar="FOLDER",
        help="instead of logs, what trainer.debug.dump has recorded of a task here",
    )
    tensorboard.add_argument(
        "--port",
        type=port,
        help="0 for any free port (default: 6006, or the next free one)",
    )
    doctor = commands.add_parser(
        "doctor", parents=[shared], help="check this machine and suggest fixes"
    )
    doctor.add_argument(
        "pipeline",
        nargs="?",
        metavar="PIPELINE_YAML",
        help="the pipeline whose root and ML Metadata to check "
        f"(default: ./{MAIN_FILE}, if any)",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    engine = commands.add_parser(
        "engine", parents=[shared], help="download what run.engine.runner=flink needs"
    )
    engine.add_argument("what", choices=["setup"], metavar="setup")
    docs = commands.add_parser(
        "docs",
        parents=[shared],
        help="explain a key of the YAML, and the keys below it",
    )
    docs.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="such as trainer.epochs; by default, the sections are listed",
    )
    docs.add_argument("--json", action="store_true", help="print JSON")
    docs.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON Schema of the YAML, for editors",
    )
    completion = commands.add_parser(
        "completion", parents=[shared], help="print the completion script of a shell"
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])

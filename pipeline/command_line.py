"""The command line of `strategos`: its commands and their options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.view.usage import Parser

_READ: dict[str, Any] = dict(
    nargs="?",
    metavar="PIPELINE_YAML",
    help=f"the pipeline (default: ./{MAIN_FILE}, else that of the last root used)",
)
_STACK = (("TFX", "tfx"), ("TensorFlow", "tensorflow"), ("Beam", "apache-beam"))


_Commands: TypeAlias = "argparse._SubParsersAction[Any]"
_Parents: TypeAlias = Sequence[argparse.ArgumentParser]


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; its result has the command's name as `command`."""
    parser = Parser(
        prog="strategos",
        description="A declarative TFX pipeline whose trainer picks its own "
        "tf.distribute strategy.",
    )
    parser.add_argument(
        "--version",
        action=_Version,
        help="show the versions of Strategos and its stack",
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--debug", action="store_true", help="show the traceback of an error"
    )
    _add_starting(commands, shared)
    _add_running(commands, [shared, _settings()])
    _add_seeing(commands, shared)
    _add_deploying(commands, [shared, _settings()])
    return parser


class _Version(argparse.Action):
    """Prints versions from the packages' metadata, without importing the packages."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any):
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        python = ".".join(map(str, sys.version_info[:3]))
        named = (f"{shown} {_version(package)}" for shown, package in _STACK)
        print(
            f"strategos {_version('strategos')} ({', '.join(named)}, Python {python})"
        )
        parser.exit()


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is missing"


def _settings() -> argparse.ArgumentParser:
    """Options of all commands that read a pipeline.yaml."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "pipeline",
        nargs="?",
        default=MAIN_FILE,
        metavar="PIPELINE_YAML",
        help=f"the pipeline (default: ./{MAIN_FILE})",
    )
    parser.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="FILE",
        help="a YAML file whose settings override the pipeline's; may be repeated",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting, such as trainer.epochs=3; overrides the files",
    )
    return parser


def _add_starting(commands: _Commands, shared: argparse.ArgumentParser) -> None:
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
        "--label", required=True, metavar="COLUMN", help="the column to predict"
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
    data = commands.add_parser(
        "data",
        parents=[shared, table],
        help="show types, ranges, missing values and doubtful columns of a table",
    )
    data.add_argument("--json", action="store_true", help="print JSON")


def _add_running(commands: _Commands, parents: _Parents) -> None:
    judging = argparse.ArgumentParser(add_help=False)
    judging.add_argument(
        "--without-baseline",
        action="store_true",
        help="judge the model without comparing it with the one in production; the "
        "run records it",
    )
    judging.add_argument(
        "--take-over",
        metavar="PLACE",
        help="push although the root at PLACE pushed the newest version in pusher.to",
    )
    run = commands.add_parser(
        "run", parents=[*parents, judging], help="run the pipeline once"
    )
    run.add_argument(
        "--runner",
        choices=["local", "beam", "kubeflow", "vertex"],
        help="override run.runner; the last two compile and submit the pipeline",
    )
    run.add_argument(
        "--wait",
        action="store_true",
        help="follow a submitted run to its end; local runs always do",
    )
    run.add_argument(
        "--follow", metavar="RUN", help="follow a run that was submitted before"
    )
    run.add_argument(
        "--terminate", metavar="RUN", help="end a run that was submitted before"
    )
    run.add_argument(
        "--from", dest="from_node", metavar="NODE", help="start at this node"
    )
    run.add_argument(
        "--to", dest="to_node", metavar="NODE", help="stop after this node"
    )
    run.add_argument(
        "--no-cache", action="store_true", help="run every node, cached or not"
    )
    run.add_argument(
        "--from-scratch",
        action="store_true",
        help="ignore the checkpoints of a training that was interrupted",
    )
    run.add_argument(
        "--profile",
        metavar="A..B",
        help="profile these steps of the training, for `strategos tensorboard`; short "
        "for trainer.callbacks.tensorboard.profile",
    )
    _add_dev(commands, parents)
    _add_debug(commands, parents)
    validate = commands.add_parser(
        "validate", parents=parents, help="check the YAML, its files and modules"
    )
    validate.add_argument(
        "--deep",
        action="store_true",
        help="import the components of `nodes`, with TFX, to check types at once",
    )
    config = commands.add_parser(
        "config", parents=parents, help="show the effective settings and their origin"
    )
    config.add_argument("--json", action="store_true", help="print JSON")
    subject = argparse.ArgumentParser(add_help=False)
    subject.add_argument("what", choices=["distribution"], metavar="distribution")
    explain = commands.add_parser(
        "explain",
        parents=[subject, *parents],
        help="show which devices would train the model, why, and at what cost",
    )
    explain.add_argument("--json", action="store_true", help="print JSON")
    check = commands.add_parser(
        "check-cluster",
        parents=parents,
        help="measure the hosts of a training: who joins, exchanges or computes slowly",
    )
    check.add_argument(
        "--megabytes",
        type=_count,
        default=64,
        metavar="N",
        help="the size that workers exchange and save, such as that of the model's "
        "weights (default 64)",
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser(
        "worker", parents=parents, help="run this host's task of a training elsewhere"
    )
    retrain = commands.add_parser(
        "retrain",
        parents=[*parents, judging],
        help="run if new data or the model's age require it",
    )
    retrain.add_argument(
        "--if-due", action="store_true", help="do nothing unless a run is due"
    )
    retrain.add_argument(
        "--dry-run", action="store_true", help="print the decision and its reason only"
    )
    retrain.add_argument(
        "--json", action="store_true", help="print the decision as JSON"
    )
    retrain.add_argument(
        "--spans", metavar="A..B", help="run once as of each of these spans, in order"
    )

    _add_schedule(commands, parents)


def _add_dev(commands: _Commands, parents: _Parents) -> None:
    dev = commands.add_parser(
        "dev",
        parents=parents,
        help="run now and after each change of the YAML and the modules, until Ctrl-C",
    )
    either = dev.add_mutually_exclusive_group()
    either.add_argument(
        "--rows",
        type=_count,
        metavar="N",
        help="run on the first rows of each data file, N in all, under a root of "
        "their own",
    )
    either.add_argument(
        "--push", action="store_true", help="also push models that are blessed"
    )


def _add_debug(commands: _Commands, parents: _Parents) -> None:
    debug = commands.add_parser(
        "debug",
        parents=parents,
        help="run one training step on a few rows in this process: breakpoints work",
    )
    debug.add_argument(
        "--rows",
        type=_count,
        default=10,
        metavar="N",
        help="the first N rows of the step's batch (default 10)",
    )
    debug.add_argument(
        "--step",
        type=_count,
        default=1,
        metavar="N",
        help="take the rows of the N-th step of the training (default 1)",
    )


def _add_schedule(commands: _Commands, parents: _Parents) -> None:
    schedule = commands.add_parser(
        "schedule", help="run again and again: here, by another clock, or on a service"
    )
    what = schedule.add_subparsers(
        dest="what", required=True, metavar="start|export|create|list|delete"
    )
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--every",
        type=_duration,
        default="1m",
        metavar="DURATION",
        help="time from check to check, such as 30s or 15m (default 1m)",
    )
    what.add_parser(
        "start", parents=[*parents, every], help="check in the foreground until Ctrl-C"
    )
    export = what.add_parser(
        "export", parents=[*parents, every], help="print what another clock needs"
    )
    export.add_argument("--to", choices=["cron", "cronjob", "systemd"], required=True)
    target = argparse.ArgumentParser(add_help=False)
    target.add_argument("--target", choices=["kubeflow", "vertex"], required=True)
    for name, text in (
        ("create", "let a service run the pipeline by schedule.cron"),
        ("list", "show the service's schedules of the pipeline"),
        ("delete", "delete the service's schedules of the pipeline"),
    ):
        what.add_parser(name, parents=[*parents, target], help=text)


def _add_seeing(commands: _Commands, shared: argparse.ArgumentParser) -> None:
    root = argparse.ArgumentParser(add_help=False)
    root.add_argument(
        "--root",
        metavar="DIR",
        help=f"the pipeline root (default: of ./{MAIN_FILE}, else the last one used), "
        "or grpc://HOST:PORT of Kubeflow's ML Metadata",
    )
    place = argparse.ArgumentParser(add_help=False, parents=[root])
    place.add_argument("--json", action="store_true", help="print JSON")
    runs = commands.add_parser(
        "runs", parents=[shared, place], help="list past runs and how they ended"
    )
    runs.add_argument(
        "show_or_pipeline",
        nargs="*",
        metavar="[show [RUN]] [PIPELINE_YAML]",
        help="`show` for one run in full (default: the last); the pipeline (default: "
        f"./{MAIN_FILE}, else that of the last root used)",
    )
    runs.add_argument(
        "--limit", type=_count, default=20, metavar="N", help="at most N (default 20)"
    )
    runs.add_argument(
        "--slices",
        action="store_true",
        help="all slices and bounds in `show --json`, not 100 of each",
    )
    lineage = commands.add_parser(
        "lineage", parents=[shared, place], help="show what a model was made from"
    )
    lineage.add_argument(
        "model", metavar="MODEL", help="a pushed folder, version, run or artifact id"
    )
    lineage.add_argument("pipeline", **_READ)
    tensorboard = commands.add_parser(
        "tensorboard", parents=[shared, root], help="show the logs of the last runs"
    )
    tensorboard.add_argument("pipeline", **_READ)
    tensorboard.add_argument("--run", metavar="RUN", help="only the logs of this run")
    tensorboard.add_argument(
        "--port",
        type=int,
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
    engine = commands.add_parser(
        "engine", parents=[shared], help="download what run.engine.runner=flink needs"
    )
    engine.add_argument("what", choices=["setup"], metavar="setup")


def _duration(text: str) -> str:
    if not re.fullmatch("[1-9][0-9]{0,5}[smhdw]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 5m")
    return text


def _age(text: str) -> str:
    """A duration that may be 0."""
    return text if re.fullmatch("0[smhdw]", text) else _duration(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, at least 1")
    return int(text)


def _add_deploying(commands: _Commands, parents: _Parents) -> None:
    predict = commands.add_parser(
        "predict", parents=parents, help="predict rows with the newest pushed model"
    )
    predict.add_argument(
        "rows",
        metavar="ROWS.csv",
        nargs="?",
        help="CSV with a header, or Parquet, read as for training; -, or none: from "
        "standard input",
    )
    predict.add_argument("--json", action="store_true", help="print JSON lines")
    predict.add_argument(
        "--bad-rows",
        choices=("fail", "mark"),
        default="fail",
        help="fail at a row with a wrong or missing value (default), or answer it with "
        "its problem and go on",
    )
    models = commands.add_parser(
        "models", parents=parents, help="list the pushed versions of the model"
    )
    models.add_argument("--json", action="store_true", help="print JSON")
    canary = commands.add_parser("canary", help="decide on the model on trial")
    what = canary.add_subparsers(dest="what", required=True, metavar="promote|abort")
    promote = what.add_parser(
        "promote", parents=parents, help="judge it on the newest span; make it live"
    )
    promote.add_argument(
        "--unjudged", action="store_true", help="make it live without judging"
    )
    what.add_parser("abort", parents=parents, help="withdraw it")
    clean = commands.add_parser(
        "clean", parents=parents, help="remove artifacts that nothing needs any more"
    )
    clean.add_argument(
        "--delete", action="store_true", help="remove them; without it, only list them"
    )
    clean.add_argument(
        "--keep",
        type=_count,
        default=10,
        metavar="N",
        help="keep the artifacts of the N newest runs with a model (default 10)",
    )
    clean.add_argument(
        "--older-than",
        type=_age,
        default="30d",
        metavar="DURATION",
        help="keep everything that is younger; 0s for nothing (default 30d)",
    )
    clean.add_argument("--json", action="store_true", help="print JSON")
    rollback = commands.add_parser(
        "rollback", parents=parents, help="make an earlier pushed version live again"
    )
    rollback.add_argument(
        "version", nargs="?", type=_count, metavar="VERSION", help="default: the former"
    )
    compile_ = commands.add_parser(
        "compile", parents=parents, help="write the pipeline for Kubeflow or Vertex"
    )
    compile_.add_argument("--target", choices=["kubeflow", "vertex"], required=True)
    compile_.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="default: NAME-kubeflow.yaml or NAME-vertex.json",
    )
    image = commands.add_parser(
        "image", help="build the image that the steps on a cluster run in"
    )
    what = image.add_subparsers(dest="what", required=True, metavar="build")
    build = what.add_parser(
        "build", parents=parents, help="build it with buildah, podman or docker"
    )
    build.add_argument("--target", choices=["kubeflow", "vertex"], required=True)
    build.add_argument(
        "--push", action="store_true", help="push it to the registry in its name"
    )

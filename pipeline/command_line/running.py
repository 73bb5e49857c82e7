"""Commands that check and run a pipeline."""

from __future__ import annotations

import argparse

from strategos.pipeline.command_line.arguments import (
    READ,
    Commands,
    Parents,
    count,
    duration,
    place,
)
from strategos.pipeline.config import MAIN_FILE


def add(commands: Commands, parents: Parents) -> None:
    """Adds these commands.

    Args:
      commands: The commands of `strategos`.
      parents: The options of all commands, and the pipeline with its settings.
    """
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
    validate.add_argument("--json", action="store_true", help="print JSON")
    anomalies = commands.add_parser(
        "anomalies",
        parents=parents,
        help="find the rows with values that the schema forbids",
    )
    anomalies.add_argument(
        "--rows",
        nargs="?",
        const="anomalies.jsonl",
        metavar="FILE",
        help="write all of them, as JSON lines (default file: anomalies.jsonl)",
    )
    anomalies.add_argument("--json", action="store_true", help="print JSON")
    config = commands.add_parser(
        "config", parents=parents, help="show the effective settings and their origin"
    )
    config.add_argument("--json", action="store_true", help="print JSON")
    explain = commands.add_parser(
        "explain", help="show why a run or a choice is as it is"
    )
    what = explain.add_subparsers(dest="what", required=True, metavar="WHAT")
    distribution = what.add_parser(
        "distribution",
        parents=parents,
        help="show the devices that would train the model, why, and at what cost",
    )
    distribution.add_argument("--json", action="store_true", help="print JSON")
    of_runs = {
        "run": "show why each node of a run ran, or was taken from the cache",
        "blessing": "show how the model of a run stands to each bound",
    }
    for name, text in of_runs.items():
        run = what.add_parser(name, parents=[parents[0], place()], help=text)
        run.add_argument(
            "run_or_pipeline",
            nargs="*",
            metavar="[RUN] [PIPELINE_YAML]",
            help="the run's id (default: of the last run); the pipeline (default: "
            f"./{MAIN_FILE}, else that of the last root used)",
        )
    decided = what.add_parser(
        "retrain",
        parents=[parents[0], place()],
        help="show the last decisions of `retrain`, why, and what became of them",
    )
    decided.add_argument("pipeline", **READ)
    decided.add_argument(
        "--limit", type=count, default=10, metavar="N", help="at most N (default 10)"
    )
    check = commands.add_parser(
        "check-cluster",
        parents=parents,
        help="measure the hosts of a training: who joins, exchanges or computes slowly",
    )
    check.add_argument(
        "--megabytes",
        type=count,
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


def _add_dev(commands: Commands, parents: Parents) -> None:
    dev = commands.add_parser(
        "dev",
        parents=parents,
        help="run now and after each change of the YAML and the modules, until Ctrl-C",
    )
    either = dev.add_mutually_exclusive_group()
    either.add_argument(
        "--rows",
        type=count,
        metavar="N",
        help="run on the first rows of each data file, N in all, under a root of "
        "their own",
    )
    either.add_argument(
        "--push", action="store_true", help="also push models that are blessed"
    )


def _add_debug(commands: Commands, parents: Parents) -> None:
    debug = commands.add_parser(
        "debug",
        parents=parents,
        help="run one training step on a few rows in this process: breakpoints work",
    )
    debug.add_argument(
        "--rows",
        type=count,
        default=10,
        metavar="N",
        help="the first N rows of the step's batch (default 10)",
    )
    debug.add_argument(
        "--step",
        type=count,
        default=1,
        metavar="N",
        help="take the rows of the N-th step of the training (default 1)",
    )


def _add_schedule(commands: Commands, parents: Parents) -> None:
    schedule = commands.add_parser(
        "schedule", help="run again and again: here, by another clock, or on a service"
    )
    what = schedule.add_subparsers(
        dest="what", required=True, metavar="start|export|create|list|delete"
    )
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--every",
        type=duration,
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
    made = {
        name: what.add_parser(name, parents=[*parents, target], help=text)
        for name, text in (
            ("create", "let a service run the pipeline by schedule.cron"),
            ("list", "show the service's schedules of the pipeline"),
            ("delete", "delete the service's schedules of the pipeline"),
        )
    }
    made["list"].add_argument("--json", action="store_true", help="print JSON")

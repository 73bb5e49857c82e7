"""Types of the arguments of commands, and arguments that several commands have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from strategos.pipeline.config import MAIN_FILE

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
Parents: TypeAlias = Sequence[argparse.ArgumentParser]

READ: dict[str, Any] = dict(
    nargs="?",
    metavar="PIPELINE_YAML",
    help=f"the pipeline (default: ./{MAIN_FILE}, else that of the last root used)",
)
"""The pipeline, for commands that only read."""


def settings() -> argparse.ArgumentParser:
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


def root() -> argparse.ArgumentParser:
    """Options of all commands that read the history of a root."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--root",
        metavar="DIR",
        help=f"the pipeline root (default: of ./{MAIN_FILE}, else the last one used), "
        "or grpc://HOST:PORT of Kubeflow's ML Metadata",
    )
    return parser


def place() -> argparse.ArgumentParser:
    """The options of `root`, and JSON as the form of the output."""
    parser = argparse.ArgumentParser(add_help=False, parents=[root()])
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def duration(text: str) -> str:
    """The type of durations such as `30s`."""
    if not re.fullmatch("[1-9][0-9]{0,5}[smhdw]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 5m")
    return text


def age(text: str) -> str:
    """A duration that may be 0."""
    return text if re.fullmatch("0[smhdw]", text) else duration(text)


def count(text: str) -> int:
    """The type of whole numbers from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, at least 1")
    return int(text)


def port(text: str) -> int:
    """The type of ports, 0 for any free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def names(text: str) -> list[str]:
    """The type of lists of distinct names, such as `id,date`."""
    words = [each.strip() for each in text.split(",")]
    if not all(words) or len(set(words)) < len(words):
        problem = f"{text!r} is not a list of distinct names such as id,date"
        raise argparse.ArgumentTypeError(problem)
    return words

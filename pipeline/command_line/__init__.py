"""The command line of `strategos`: its commands and their options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from strategos.pipeline.command_line import deploying, running, seeing, starting
from strategos.pipeline.command_line.arguments import settings
from strategos.pipeline.view.usage import Parser

_STACK = (("TFX", "tfx"), ("TensorFlow", "tensorflow"), ("Beam", "apache-beam"))


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
    starting.add(commands, shared)
    running.add(commands, [shared, settings()])
    seeing.add(commands, shared)
    deploying.add(commands, [shared, settings()])
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

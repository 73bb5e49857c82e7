"""A pipeline that a Beam job server runs: its failure is the reason alone."""

from __future__ import annotations

import re
from typing import Any

import apache_beam as beam
import grpc

from strategos.components.errors import UserError, first_line
from strategos.components.shards.flink import watch

_TRACEBACK = "Traceback (most recent call last):\n"
# An error of ours, with what Python puts before it and Beam behind it.
_OWN = re.compile(r"^\S+\.UserError: (.*) \[while running '[^']*'\]$", re.S)
_JAVA_FRAMES = re.compile(r"\n\s*(?:at |Caused by: |\.\.\. \d+ more)")


class Job(beam.Pipeline):
    """Runs at the end of its `with` block, which raises a UserError if it fails.

    Args:
      name: Of the job; no other one has it.
      master: Address of the REST API of Flink's JobManager; None for other runners.
      limits: Of a job on Flink.
      argv: Beam's options.
    """

    def __init__(
        self, name: str, master: str | None, limits: watch.Limits, argv: list[str]
    ):
        super().__init__(argv=[*argv, "--no_wait_until_finish"])
        self._name, self._master, self._limits = name, master, limits

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)  # submits the job
            if raised[0] is None:
                finish = self.result.wait_until_finish
                watch.wait(finish, self._master, self._name, self._limits)
        except grpc.RpcError as error:
            raise UserError(
                "Beam's job server ended the connection",
                remedy="It was killed, or has no memory left: see its log. Run again: "
                "what was finished is cached.",
            ) from error
        except RuntimeError as error:
            raise UserError(reason(str(error))) from error


def reason(message: str) -> str:
    """Why a job failed: the exception of a worker's Python code, if it was one.

    Args:
      message: What the job server says, with the frames of Java and Python.
    """
    _, is_python, trace = message.rpartition(_TRACEBACK)
    lines = _JAVA_FRAMES.split(trace, maxsplit=1)[0].splitlines()
    if not is_python:
        return f"the job on `run.engine` failed: {first_line(message)}"
    while lines and lines[0].startswith(" "):  # frames
        lines.pop(0)
    return _OWN.sub(r"\1", "\n".join(lines).strip())

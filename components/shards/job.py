"""A pipeline that a Beam job server runs: its failure is the reason alone."""

from __future__ import annotations

import re
from typing import Any

import apache_beam as beam
import grpc

from strategos.components.errors import UserError, first_line
from strategos.components.shards.flink.watch import watch

_TRACEBACK = "Traceback (most recent call last):\n"
_JAVA_FRAMES = re.compile(r"\n\s*(?:at |Caused by: |\.\.\. \d+ more)")


class Job(beam.Pipeline):
    """Runs at the end of its `with` block, which raises a UserError if it fails.

    Args:
      name: Of the job; no other one has it.
      master: Address of the REST API of Flink's JobManager; None for other runners.
      **how: Keyword arguments of `beam.Pipeline`.
    """

    def __init__(self, name: str, master: str | None, **how: Any):
        super().__init__(**how)
        self._name, self._master = name, master

    def __exit__(self, *raised: Any) -> None:
        with watch(self._master, self._name) as watched:
            try:
                super().__exit__(*raised)
            except grpc.RpcError as error:
                raise UserError(
                    "Beam's job server ended the connection", remedy="See its log."
                ) from error
            except RuntimeError as error:
                raise UserError(reason(watched.failure or str(error))) from error


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
    return "\n".join(lines).strip()

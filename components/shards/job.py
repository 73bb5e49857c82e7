"""A pipeline that a Beam job server runs: its failure is the reason alone."""

from __future__ import annotations

import re
from concurrent import futures
from typing import Any

import apache_beam as beam
import grpc

from strategos.components.errors import UserError, first_line
from strategos.components.shards.flink import watch
from strategos.components.shards.flink.connection import Connection

_NOTICE_SECONDS = 3.0  # for the host of a cluster to notice that a process has ended
_TRACEBACK = "Traceback (most recent call last):\n"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(.*?)'")
# A `UserError`, with Python's prefix and Beam's suffix.
_OWN = re.compile(r"^\S+\.UserError: (.*) \[while running '[^']*'\]$", re.S)
_JAVA_FRAMES = re.compile(r"\n\s*(?:at |Caused by: |\.\.\. \d+ more)")


class BeamJob(beam.Pipeline):
    """Runs at the end of its `with` block, which raises a UserError if it fails.

    Args:
      name: Name of the job; no other job has it.
      connection: Connection to the job server.
      limits: Time limits of a job on Flink.
      argv: Beam's options.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        limits: watch.JobLimits,
        argv: list[str],
    ):
        argv = [*argv, f"--job_name={name}", "--no_wait_until_finish"]
        super().__init__(argv=argv)
        self._name, self._connection, self._limits = name, connection, limits

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)  # submits the job
            if raised[0] is None:
                finish = self.result.wait_until_finish
                watch.wait(finish, self._connection, self._name, self._limits)
        except grpc.RpcError as error:
            raise self._lost() from error
        except RuntimeError as error:
            raise _failure(str(error)) from error

    def _lost(self) -> UserError:
        """The error for a job server that ended the connection."""
        lost = self._connection.lost
        if futures.wait([lost], _NOTICE_SECONDS).done:
            return lost.result()
        return UserError(
            f"Beam's job server at {self._connection.job_endpoint} ended the "
            "connection",
            remedy="It was killed, or has no memory left: see its log. Run again: "
            "what was finished is cached.",
        )


def _failure(message: str) -> UserError:
    why = reason(message)
    missing = _MISSING.match(why)
    if missing is None:
        return UserError(why)
    return UserError(
        f"workers of `run.engine` cannot import {missing[1]}",
        remedy="Their hosts need this Python environment, and the user's modules, at "
        "the same paths.",
    )


def reason(message: str) -> str:
    """The reason of a failure: the exception of a worker's Python code, if any.

    Args:
      message: The job server's message, with the frames of Java and Python.
    """
    _, is_python, trace = message.rpartition(_TRACEBACK)
    lines = _JAVA_FRAMES.split(trace, maxsplit=1)[0].splitlines()
    if not is_python:
        return f"the job on `run.engine` failed: {first_line(message)}"
    while lines and lines[0].startswith(" "):  # frames
        lines.pop(0)
    return _OWN.sub(r"\1", "\n".join(lines).strip())

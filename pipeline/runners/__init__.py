"""Runners: a compiled pipeline in, a run out, each behind `Runner.run`."""

from __future__ import annotations

from typing import Protocol

from strategos.pipeline.plan.plan import Plan


class NodeFailedError(Exception):
    """A node failed, and with it the run.

    Attributes:
      node: Its id.
      cause: What went wrong, complete for its reader.
      exit_code: 1 for a failure, 3 where a gate stopped the run.
    """

    def __init__(self, node: str, cause: str, exit_code: int = 1):
        super().__init__(f"{node}: {cause}")
        self.node, self.cause, self.exit_code = node, cause, exit_code


class Runner(Protocol):
    """What every runner of this machine offers."""

    def run(self, plan: Plan) -> None:
        """Runs the nodes of `plan` in order.

        Raises:
          NodeFailedError: A node failed; later nodes did not run.
        """

"""Runners: each executes a plan behind the same interface, `Runner.run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from strategos.components import errors
from strategos.components.files import object_stores
from strategos.pipeline.plan.plan import Plan

if TYPE_CHECKING:
    from tfx.proto.orchestration import execution_result_pb2


class NodeFailedError(Exception):
    """A node failed, and with it the run.

    Attributes:
      node: The node's id.
      error: The error, worded for users.
    """

    def __init__(self, node: str, error: errors.UserError):
        super().__init__(f"{node}: {error}")
        self.node, self.error = node, error

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values, for events and between processes."""
        return {"node": self.node, "error": self.error.to_json()}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> NodeFailedError:
        """Restores a failure from `to_json`."""
        return cls(described["node"], errors.from_json(described["error"]))


class Runner(Protocol):
    """Executes plans on this machine."""

    def run(self, plan: Plan) -> None:
        """Runs the nodes of `plan` in order.

        Raises:
          NodeFailedError: A node failed; later nodes did not run.
        """


def described(error: BaseException) -> errors.UserError:
    """Converts any error to a `UserError` with its type and message."""
    if isinstance(error, errors.UserError):
        return error
    passes = isinstance(error, OSError) and object_stores.is_away(error)
    kind = errors.PassingError if passes else errors.UserError
    return kind(f"{type(error).__name__}: {error}")


def output_of(
    work: Callable[[], execution_result_pb2.ExecutorOutput],
) -> execution_result_pb2.ExecutorOutput:
    """The output of an executor; a failure is logged, and is in `execution_result`.

    Args:
      work: Runs the executor.
    """
    from tfx.proto.orchestration import execution_result_pb2

    try:
        return work()
    except Exception as error:
        logging.exception("failed")
        output = execution_result_pb2.ExecutorOutput()
        write_result(described(error), output.execution_result)
        return output


def write_result(
    error: errors.UserError, result: execution_result_pb2.ExecutionResult
) -> None:
    """Writes `error` to the result of an executor, which TFX stores in ML Metadata.

    Args:
      error: The error.
      result: Changed in place.
    """
    from google.protobuf import struct_pb2

    result.code, result.result_message = error.exit_code, str(error)
    fields = struct_pb2.Struct()
    fields.update(error.to_json())
    result.metadata_details.add().Pack(fields)


def read_result(result: execution_result_pb2.ExecutionResult) -> errors.UserError:
    """Reads the error that `write_result` wrote; else TFX's own message."""
    from google.protobuf import json_format, struct_pb2

    fields = struct_pb2.Struct()
    if any(detail.Unpack(fields) for detail in result.metadata_details):
        return errors.from_json(json_format.MessageToDict(fields))
    return errors.UserError(result.result_message)

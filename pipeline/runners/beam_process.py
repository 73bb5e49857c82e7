"""The process of the beam runner: reads a plan from standard input and runs it."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from strategos.components import events
from strategos.components.container import warm_start
from strategos.components.errors import ExitCode
from strategos.components.processes import die_with_parent, without_collections

if TYPE_CHECKING:
    from tfx.proto.orchestration import pipeline_pb2


def main(parent: int) -> int:
    """Runs the plan.

    Args:
      parent: Process id of the orchestrator; this process ends with it.

    Returns:
      DONE if every node finished, else FAILED.
    """
    die_with_parent(parent)  # before the imports, which take ten seconds
    request = json.load(sys.stdin)
    warm_start.prepare()
    logging.basicConfig(level=logging.INFO)
    events.open_sink(request["events"])
    try:
        with without_collections():
            from strategos.pipeline.runners import beam_nodes
            from strategos.pipeline.runners.remote_root import artifacts

        ir = _ir(request)
        root = ir.runtime_spec.pipeline_root.field_value.string_value
        with artifacts.of(root, os.environ) as made:
            beam_nodes.run(ir, request["wait"], made)
    except Exception:
        logging.exception("the run failed")
        return ExitCode.FAILED
    return ExitCode.DONE


def _ir(request: dict[str, Any]) -> pipeline_pb2.Pipeline:
    """The IR with the connection: added here, so that no password is on disk."""
    from ml_metadata.proto import metadata_store_pb2
    from tfx.proto.orchestration import pipeline_pb2

    ir = pipeline_pb2.Pipeline.FromString(base64.b64decode(request["ir"]))
    deployment = pipeline_pb2.IntermediateDeploymentConfig()
    ir.deployment_config.Unpack(deployment)
    config = metadata_store_pb2.ConnectionConfig.FromString(
        base64.b64decode(request["connection"])
    )
    deployment.metadata_connection_config.Pack(config)
    ir.deployment_config.Pack(deployment)
    return ir


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    # Not `sys.exit`: threads of TensorFlow and Beam may block an ordinary exit.
    os._exit(code)

"""BeamDagRunner as a program: a plan on standard input, events as it goes."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys

from strategos.components.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))  # TFX takes ten seconds to import

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration.beam import beam_dag_runner
from tfx.proto.orchestration import pipeline_pb2

from strategos.components import events
from strategos.pipeline.runners.launching import launch


class NodeDoFn(beam_dag_runner.PipelineNodeAsDoFn):
    """Launches a node with the events and errors that all our runners share."""

    def _run_node(self) -> None:
        launch(
            self._pipeline_node,
            self._pipeline,
            self._deployment_config,
            self._mlmd_connection_config,
        )


class Runner(beam_dag_runner.BeamDagRunner):
    """BeamDagRunner with our DoFn, by the attribute that it has for that."""

    _PIPELINE_NODE_DO_FN_CLS = NodeDoFn


def main() -> int:
    """Runs the plan; 0 if every node finished."""
    logging.basicConfig(level=logging.INFO)
    request = json.load(sys.stdin)
    events.open_sink(request["events"])
    ir = pipeline_pb2.Pipeline.FromString(base64.b64decode(request["ir"]))
    _set_connection(ir, base64.b64decode(request["connection"]))
    try:
        Runner().run_with_ir(ir)
    except Exception:
        logging.exception("the run failed")
        return 1
    return 0


def _set_connection(ir: pipeline_pb2.Pipeline, connection: bytes) -> None:
    """Passwords are not in the IR on disk: the connection joins it here."""
    deployment = pipeline_pb2.IntermediateDeploymentConfig()
    ir.deployment_config.Unpack(deployment)
    config = metadata_store_pb2.ConnectionConfig.FromString(connection)
    deployment.metadata_connection_config.Pack(config)
    ir.deployment_config.Pack(deployment)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not an ordinary exit: threads of TensorFlow and Beam may hold that up.
    os._exit(code)

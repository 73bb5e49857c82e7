"""The warm executor process: compiles pipelines and runs executors, one at a time."""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from strategos.components import events, node_ids
from strategos.components.container import warm_start
from strategos.components.files import commit
from strategos.components.processes import (
    die_with_parent,
    return_freed_memory,
    without_collections,
)
from strategos.pipeline import runners
from strategos.pipeline.plan import tfx_adapter


def serve(descriptor: int, events_path: str, *imports: str) -> NoReturn:
    """Answers requests until the orchestrator closes the socket.

    Args:
      descriptor: File descriptor of the socket.
      events_path: The run's event file.
      *imports: What to import before the first request, with TensorFlow.
    """
    warm_start.prepare(descriptor, imports=imports)
    events.open_sink(events_path)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    _hush_absl()
    channel = socket.socket(fileno=descriptor).makefile("rw", encoding="utf-8")
    operations: dict[str, Callable[..., Any]] = {
        "compile": _compile,
        "execute": _execute,
    }
    for line in channel:
        request = json.loads(line)
        os.environ.update(request.pop("environment", {}))
        answer = operations[request.pop("op")](**request)
        channel.write(json.dumps(answer) + "\n")
        channel.flush()
        _return_freed_memory()  # while the orchestrator publishes
    sys.stdout.flush()
    # Not `sys.exit`: threads of TensorFlow and Beam may block an ordinary exit.
    os._exit(0)


_LOG_FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def _compile(arguments: str, target: str) -> dict[str, Any]:
    config, fingerprints, defaults = pickle.loads(base64.b64decode(arguments))
    try:
        from strategos.pipeline.plan import graph

        with without_collections():
            pipeline = graph.build(config, fingerprints, defaults, movable=True)
        ir = tfx_adapter.compile_ir(pipeline)
    except Exception as error:
        logging.exception("failed")
        return {"error": runners.described(error).to_json()}
    commit.write(target, ir.SerializeToString(deterministic=True))
    return {}


def _execute(node: str, beam: bool, spec: str, info: str) -> dict[str, Any]:
    logging.info("==== %s ====", node)
    events.set_node(node)
    if node == node_ids.TRAINER:
        warm_start.import_beside()
    output = runners.output_of(lambda: tfx_adapter.run_executor(beam, spec, info))
    events.set_node(None)
    return {"output": base64.b64encode(output.SerializeToString()).decode()}


def _return_freed_memory() -> None:
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    return_freed_memory()


def _hush_absl() -> None:
    # absl's handler would write each record a second time, in another format.
    from absl import logging as absl_logging

    logging.root.removeHandler(absl_logging.get_absl_handler())


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    serve(int(sys.argv[2]), *sys.argv[3:])

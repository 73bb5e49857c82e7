"""The program of a step: TFX's container entry point, for the launchers that exist.

    python -m strategos.components.container.entry kubeflow|vertex ARGUMENTS

TFX's entry point alone fails or depends on TensorFlow to open URLs. So executors work
on copies in folders of the container, and in the output file their paths become URLs
again. The launcher of Kubeflow Pipelines copies to and from its folders, and gives
inputs without their types, which are taken from the specification of the inputs. Vertex
AI's copies nothing, so that this program does. Before the executor runs, the user's
modules are downloaded if the environment names their archive.

Examples stay in the store, where executors and workers of an engine stream them: always
on Vertex AI, and on Kubeflow Pipelines with an engine other than `direct`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import posixpath
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from strategos.components import worker_process
from strategos.components.container import mounts, step_log, step_record, warm_start
from strategos.components.errors import UserError
from strategos.components.files import filesystems, object_stores, storage, temporary
from strategos.components.processes import without_collections
from strategos.components.shards.engine import VARIABLE, Engine
from strategos.components.trainer.operation import Operation
from strategos.components.user_code import archive

_CALL = "--json_serialized_invocation_args"
_INPUTS = "--json_serialized_inputs_spec_args"
_EXECUTOR, _PACKAGE = "--executor_class_path", "strategos."


def main(arguments: Sequence[str]) -> int:
    """Runs an executor; returns the exit code of the step.

    Args:
      arguments: `kubeflow` or `vertex`, then the arguments of TFX's entry point.
    """
    launcher, *rest = arguments
    for name, value in worker_process.TENSORFLOW.items():
        os.environ.setdefault(name, value)
    try:
        with archive.of_step(launcher), step_log.opened() as event_file:
            if launcher == "vertex":
                _execute_on_copies(rest, event_file)
            elif Engine.from_environment().runner != "direct":
                _execute_on_urls(rest, mounts.Mounts(), event_file, "kubeflow.root")
            else:
                _execute_on_mounts(rest, mounts.Mounts(), event_file)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _execute_on_mounts(
    arguments: Sequence[str], mounted: mounts.Mounts, event_file: Path
) -> None:
    """Runs an executor on the files that the launcher of Kubeflow Pipelines copied."""
    words = list(arguments)
    at_call, at_inputs = words.index(_CALL) + 1, words.index(_INPUTS) + 1
    step_call, inputs = json.loads(words[at_call]), json.loads(words[at_inputs])
    record = step_record.taken_from(step_call)
    scheme = next((mounts.scheme_of(uri) for uri in _uris(step_call["outputs"])), "")
    call = mounts.mapped(step_call, mounted.local)
    _fill_types(call, inputs)
    _make_folders(call)
    words[at_call] = json.dumps(call)
    _execute(words)
    _map_output_file(call, lambda uri: mounted.remote(uri, scheme))
    step_record.write(record, step_call, mounted.local, event_file)


def _execute_on_copies(arguments: Sequence[str], event_file: Path) -> None:
    """Runs an executor on files that this program copies.

    Checkpoints stay in the store: a step that is started again resumes from them.

    Raises:
      UserError: The object store cannot be read or written.
    """
    call = json.loads(arguments[arguments.index(_CALL) + 1])
    output_file = call["outputs"]["outputFile"]
    name = hashlib.sha256(output_file.encode()).hexdigest()[:12]
    with temporary.shared(name) as folder:
        # The same paths again, as they are part of the key of the checkpoints.
        mounted = mounts.Mounts({mounts.VARIABLE: folder})
        _execute_on_urls(arguments, mounted, event_file, "vertex.root", copies=True)


def _execute_on_urls(
    arguments: Sequence[str],
    mounted: mounts.Mounts,
    event_file: Path,
    key: str,
    *,
    copies: bool = False,
) -> None:
    """Runs an executor on examples in the object store, and on copies of the rest.

    Args:
      arguments: The arguments of TFX's entry point.
      mounted: The folders for the copies.
      event_file: The step's event file.
      key: The setting that names the store, for messages.
      copies: Whether to copy; else, the launcher does.

    Raises:
      UserError: The object store cannot be read or written.
    """
    words = list(arguments)
    at_call, at_inputs = words.index(_CALL) + 1, words.index(_INPUTS) + 1
    step_call = json.loads(words[at_call])
    record = step_record.taken_from(step_call)
    _fill_types(step_call, json.loads(words[at_inputs]))
    is_ours = words[words.index(_EXECUTOR) + 1].startswith(_PACKAGE)
    streamed = step_record.uris(step_call, "Examples") if is_ours else set()

    def seen(uri: str) -> str:
        url = mounts.opened_by_workers(uri)
        return url if uri in streamed else mounted.local(uri)

    made, output_file = _uris(step_call["outputs"]), step_call["outputs"]["outputFile"]
    uris = {seen(uri): uri for uri in made}
    call = mounts.mapped(step_call, seen)
    call["outputs"]["outputFile"] = seen(output_file)
    words[at_call] = json.dumps(call)
    first = next(filter(None, [*made, record, output_file]))
    step = posixpath.dirname(mounts.opened_by_workers(first))
    object_stores.check_writable(step, key=key)
    if copies:
        _download(set(_uris(step_call.get("inputs", {}))) - streamed, seen, key)
    _make_folders(call)
    with _places(step, checkpoints=copies):
        _execute(words)
    _map_output_file(call, lambda uri: uris.get(uri, uri))
    step_record.write(record, step_call, seen, event_file)
    if copies:
        _upload({*made, record, output_file} - streamed, seen, key)


def _download(uris: set[str], seen: Callable[[str], str], key: str) -> None:
    """Copies artifacts to this machine."""
    for url in filter(filesystems.is_remote, uris):
        with (
            object_stores.problems_of(url, key, "read"),
            contextlib.suppress(FileNotFoundError),  # an artifact without files
        ):
            storage.get(url, seen(url))


def _upload(uris: set[str], seen: Callable[[str], str], key: str) -> None:
    """Copies artifacts and files from this machine."""
    for url in filter(filesystems.is_remote, uris):
        if os.path.exists(seen(url)):
            with object_stores.problems_of(url, key, "written"):
                storage.put(seen(url), url)


@contextlib.contextmanager
def _places(step: str, *, checkpoints: bool) -> Iterator[None]:
    """Names folders in the store, as workers and later containers see no copies.

    Args:
      step: The folder of the step's outputs: a URL, or a path that all see.
      checkpoints: Whether a training's checkpoints belong in the store.
    """
    if not filesystems.is_remote(step):
        yield
        return
    engine, exchange = Engine.from_environment(), f"{step}/.engine"
    if engine.runner != "direct":
        engine = dataclasses.replace(engine, exchange=exchange)
        os.environ.update(engine.to_environment())
    if checkpoints:
        root = f"{posixpath.dirname(step)}/checkpoints"
        operation = Operation.from_environment()
        operation = dataclasses.replace(operation, checkpoint_root=root)
        os.environ.update(operation.to_environment())
    try:
        yield
    finally:
        if engine.exchange:
            storage.remove(exchange)


def _map_output_file(call: dict[str, Any], change: Callable[[str], str]) -> None:
    """Applies `change` to each URI in the file that the executor wrote."""
    file = Path(call["outputs"]["outputFile"])
    written = json.loads(file.read_text())
    file.write_text(json.dumps(mounts.mapped(written, change)))


def _uris(side: dict[str, Any]) -> list[str]:
    """URIs of the inputs or outputs of a call."""
    lists = side.get("artifacts", {}).values()
    return [artifact["uri"] for each in lists for artifact in each["artifacts"]]


def _fill_types(call: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Sets the types of input artifacts from the specification, in place."""
    artifacts = call.get("inputs", {}).get("artifacts", {})
    for name, entry in artifacts.items():
        declared = inputs["artifacts"][name]["artifactType"]
        for artifact in entry["artifacts"]:
            if not artifact.get("type", {}).get("instanceSchema"):
                artifact["type"] = declared


def _make_folders(call: dict[str, Any]) -> None:
    """Makes the folders of all artifacts: object stores hold no empty folders."""
    for side in ("inputs", "outputs"):
        for entry in call.get(side, {}).get("artifacts", {}).values():
            for artifact in entry["artifacts"]:
                if not filesystems.is_remote(artifact["uri"]):
                    os.makedirs(artifact["uri"], exist_ok=True)


def _execute(arguments: Sequence[str]) -> None:
    from absl import logging as absl_logging

    absl_logging.get_absl_logger().addFilter(_is_for_readers)
    with without_collections():
        from tfx.orchestration.kubeflow.v2.container import (
            kubeflow_v2_run_executor as tfx,
        )
    if VARIABLE in os.environ:
        warm_start.prepare()
    tfx.main(tfx._parse_flags([sys.argv[0], *arguments]))


def _is_for_readers(record: logging.LogRecord) -> bool:
    """Whether a line of TFX is not its dump of all artifacts as protocol buffers."""
    return not str(record.msg).startswith("Executor %s do: inputs")


if __name__ == "__main__":
    worker_process.restart_with_hash_seed()
    worker_process.leave(main(sys.argv[1:]))

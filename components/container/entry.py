"""The program of a step: TFX's container entry point, for the launchers that exist.

    python -m strategos.components.container.entry kubeflow|vertex ARGUMENTS

Under the launcher of Kubeflow Pipelines, TFX's entry point alone fails: inputs come
without their types, and with URLs that TensorFlow cannot open although the files are in
a folder of the container. So types are taken from the specification of the inputs, and
URLs become paths and, in the output file, URLs again. Before the executor runs, the
user's modules are downloaded if the environment names their archive.

With an engine other than `direct`, workers in other containers open the artifacts. So
URLs stay, with `s3://` for `minio://`, and the launcher finds no files to copy: of all
artifacts, or on S3, which TensorFlow cannot open, of the examples.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from strategos.components.files import filesystems, object_stores, storage
from strategos.components.processes import without_collections
from strategos.components.shards.engine import VARIABLE, Engine
from strategos.components.user_code import archive

_CALL = "--json_serialized_invocation_args"
_INPUTS = "--json_serialized_inputs_spec_args"


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
            if launcher == "kubeflow" and Engine.from_environment().runner != "direct":
                _execute_on_urls(rest, event_file)
            elif launcher == "kubeflow":
                _execute_on_mounts(rest, mounts.Mounts(), event_file)
            else:
                _execute_there(rest, event_file)
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
    scheme = next((mounts.scheme_of(uri) for uri in _outputs(step_call)), "")
    call = mounts.mapped(step_call, mounted.local)
    _fill_types(call, inputs)
    _make_folders(call)
    words[at_call] = json.dumps(call)
    _execute(words)
    _map_output_file(call, lambda uri: mounted.remote(uri, scheme))
    step_record.write(record, step_call, mounted.local, event_file)


def _execute_on_urls(arguments: Sequence[str], event_file: Path) -> None:
    """Runs an executor on files of the object store.

    Raises:
      UserError: Nothing can be written to the store.
    """
    words = list(arguments)
    at_call, at_inputs = words.index(_CALL) + 1, words.index(_INPUTS) + 1
    step_call = json.loads(words[at_call])
    record = step_record.taken_from(step_call)
    _fill_types(step_call, json.loads(words[at_inputs]))
    mounted, streamed = mounts.Mounts(), step_record.uris(step_call, "Examples")

    def seen(uri: str) -> str:
        url = mounts.opened_by_workers(uri)
        is_copy = filesystems.needs_copies(url) and uri not in streamed
        return mounted.local(uri) if is_copy else url

    urls = {seen(uri): uri for uri in _outputs(step_call)}
    call = mounts.mapped(step_call, seen)
    _make_folders(call)
    words[at_call] = json.dumps(call)
    step = posixpath.dirname(mounts.opened_by_workers(next(iter(urls.values()))))
    object_stores.check_writable(step, key="kubeflow.root")
    with _exchange(step):
        _execute(words)
    _map_output_file(call, lambda uri: urls.get(uri, uri))
    step_record.write(record, step_call, seen, event_file)
    if step.startswith("gs://"):
        for uri in urls:
            _remove_markers(uri)


@contextlib.contextmanager
def _exchange(step: str) -> Iterator[None]:
    """Names a folder that workers see, if the executor works on local copies.

    Args:
      step: The URL of the folder of the step's outputs.
    """
    if not filesystems.needs_copies(step):
        yield
        return
    exchange = f"{step}/.engine"
    engine = dataclasses.replace(Engine.from_environment(), exchange=exchange)
    os.environ.update(engine.to_environment())
    try:
        yield
    finally:
        storage.remove(exchange)


def _remove_markers(url: str) -> None:
    """Removes TensorFlow's empty objects that stand for folders, if any.

    The launcher of Kubeflow Pipelines takes them for files and then cannot copy the
    content of the folders.

    Args:
      url: `gs://…`, of a folder.
    """
    import tensorflow as tf

    for folder, _, _ in list(tf.io.gfile.walk(url)):
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(folder.rstrip("/") + "/")


def _execute_there(arguments: Sequence[str], event_file: Path) -> None:
    """Runs an executor on Vertex AI; its launcher gives complete URLs and types."""
    words = list(arguments)
    at_call = words.index(_CALL) + 1
    call = json.loads(words[at_call])
    record = step_record.taken_from(call)
    words[at_call] = json.dumps(call)
    _execute(words)
    step_record.write(record, call, str, event_file)


def _map_output_file(call: dict[str, Any], change: Callable[[str], str]) -> None:
    """Applies `change` to each URI in the file that the executor wrote."""
    file = Path(call["outputs"]["outputFile"])
    written = json.loads(file.read_text())
    file.write_text(json.dumps(mounts.mapped(written, change)))


def _outputs(call: dict[str, Any]) -> list[str]:
    """URIs of the outputs."""
    lists = call["outputs"].get("artifacts", {}).values()
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

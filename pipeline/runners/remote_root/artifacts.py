"""Local copies of artifacts, for executors under a root in an object store.

Executors see folders of this machine, in the local state of the root: their inputs are
downloaded before, and their outputs uploaded after them. Examples are not copied: our
executors stream them, so a split may be larger than the free disk. The Launcher, and
with it ML Metadata, sees URLs only; it registers outputs after they are uploaded.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids
from strategos.components.container import mounts
from strategos.components.files import filesystems, object_stores, storage, trees
from strategos.components.shards.engine import Engine
from strategos.components.trainer import finished
from strategos.components.trainer.operation import Operation
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.root import state
from strategos.pipeline.runners.remote_root import checkpoints

if TYPE_CHECKING:
    from tfx.orchestration.portable.data_types import ExecutionInfo
    from tfx.proto.orchestration import execution_result_pb2

    Execute = Callable[[Any, ExecutionInfo], execution_result_pb2.ExecutorOutput]


class Copies:
    """The local copies of one run.

    Only copies made by this run are used: copies of a killed run may belong to a
    deleted database, in which the same ids named other artifacts.

    Args:
      root: The URL of the root.
      operation: How the Trainer trains.
    """

    def __init__(self, root: str, operation: Operation):
        self._root, self._operation = root.rstrip("/"), operation
        self._places = state.copies(root)
        self._complete: set[str] = set()

    @property
    def folder(self) -> str:
        """The folder of all copies."""
        return self.local(self._root)

    def local(self, uri: str) -> str:
        """The place of the copy of an artifact; other texts stay as they are."""
        return self._places.local(uri)

    def execute(
        self, execute: Execute, spec: Any, info: ExecutionInfo
    ) -> execution_result_pb2.ExecutorOutput:
        """Runs an executor on local copies.

        Args:
          execute: Runs an executor on local files.
          spec: The executor spec.
          info: The execution, with URLs.

        Raises:
          UserError: The object store cannot be read or written.
        """
        kept = _streamed(info)
        for artifact in tfx_adapter.artifacts(info.input_dict):
            if artifact.uri not in kept:
                self._download(artifact.uri)
        outputs = {x.uri for x in tfx_adapter.artifacts(info.output_dict)} - kept
        for uri in outputs:
            self._make_empty(self.local(uri))
        moved = tfx_adapter.relocated(
            info, lambda uri: uri if uri in kept else self.local(uri)
        )
        for folder in (
            os.path.dirname(moved.execution_output_uri),
            moved.stateful_working_dir,
            moved.tmp_dir,
        ):
            os.makedirs(folder, exist_ok=True)
        with self._checkpoints(info):
            output = execute(spec, moved)
        if not output.execution_result.code:
            for uri in outputs:
                self._upload(uri)
        scheme = mounts.scheme_of(self._root)
        tfx_adapter.relocate_output(output, lambda at: self._places.remote(at, scheme))
        return output

    def forget_checkpoints(self, model: str) -> None:
        """Removes the checkpoints of a training after its model was registered.

        Args:
          model: The URL of the model.
        """
        finished.forget(self.local(model))
        trees.remove(self._checkpoints_of(model))

    def clear(self) -> None:
        """Removes all copies, except for a training's files that later runs need."""
        folder = Path(self.folder)
        trainers = folder.glob(f"*/{node_ids.TRAINER}")
        kept = {path for each in trainers for path in finished.unpublished(each)}
        _remove_except(folder, kept)

    def _download(self, uri: str) -> None:
        """Downloads an artifact, unless this run has or made it."""
        if uri in self._complete or not filesystems.is_remote(uri):
            return
        self._make_empty(self.local(uri))
        with (
            object_stores.problems_of(uri, "run.root", "read"),
            contextlib.suppress(FileNotFoundError),  # an artifact without files
        ):
            storage.get(uri, self.local(uri))
        self._complete.add(uri)

    def _upload(self, uri: str) -> None:
        with object_stores.problems_of(uri, "run.root", "written"):
            storage.put(self.local(uri), uri)
        self._complete.add(uri)

    @staticmethod
    def _make_empty(folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)

    def _checkpoints(self, info: ExecutionInfo) -> contextlib.AbstractContextManager:
        """Copies a training's checkpoints to the root while the block runs."""
        if info.pipeline_node.node_info.id != node_ids.TRAINER:
            return contextlib.nullcontext()
        url = self._checkpoints_of(info.output_dict["model"][0].uri)
        if self._operation.from_scratch:
            trees.remove(url)
        return checkpoints.following(Path(self.local(url)), url)

    def _checkpoints_of(self, model: str) -> str:
        trainer = posixpath.dirname(posixpath.dirname(model.rstrip("/")))
        return f"{trainer}/checkpoints/{self._operation.checkpoint_key}"


@contextlib.contextmanager
def of(artifacts: str, environ: Mapping[str, str]) -> Iterator[Copies | None]:
    """The local copies for a run; None for a root on this machine.

    Copies are removed at the end of the block; copies of killed runs, at its start.

    Args:
      artifacts: The folder of the pipeline's artifacts, in a root that is locked.
      environ: The environment of executors.
    """
    if not filesystems.is_remote(artifacts):
        yield None
        return
    root = posixpath.dirname(artifacts)
    copies = Copies(root, Operation.from_environment(environ))
    copies.clear()
    exchange = Engine.from_environment(environ).exchange
    if exchange:  # of a killed run
        trees.remove(exchange)
    try:
        yield copies
    finally:
        copies.clear()


def _streamed(info: ExecutionInfo) -> set[str]:
    """The URIs of artifacts that an executor reads and writes in their store."""
    if info.pipeline_node.node_info.id not in node_ids.ALL:
        return set()  # of the user's own node
    artifacts = tfx_adapter.artifacts({**info.input_dict, **info.output_dict})
    return {each.uri for each in artifacts if each.type_name == "Examples"}


def _remove_except(path: Path, kept: set[Path]) -> None:
    """Removes a folder or file, except for the paths in `kept`."""
    if path in kept:
        return
    if not any(each.is_relative_to(path) for each in kept):
        trees.remove(str(path))
        return
    for each in path.iterdir():
        _remove_except(each, kept)

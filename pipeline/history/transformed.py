"""The last output of Transform under a root, for commands that train without a run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids, runtime_parameters
from strategos.components.files import filesystems, object_stores, storage, temporary
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed import learned
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history.store import Store, reads_store
from strategos.pipeline.root import metadata

_DONE = (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)
NEEDED = ("schema", "transform_graph", "transformed_examples")
"""Names of the folders that a training reads."""


@dataclasses.dataclass(frozen=True)
class Transformed:
    """The inputs and outputs of Transform's last execution.

    Attributes:
      folders: Paths or URLs of `schema`, `transform_graph`, `transformed_examples`.
      at: Time of the execution, in Unix seconds.
    """

    folders: Mapping[str, str]
    at: float


def last(config: Config) -> Transformed | None:
    """Finds the last output of Transform; None if there is none, or it was removed.

    Args:
      config: The effective settings.
    """
    run = config.run
    if run.metadata == "sqlite" and not metadata.sqlite_file(run.root).exists():
        return None
    store = Store.of(config)
    output = _last(store, config.name)
    if output is None or not output.folders.keys() >= {*NEEDED}:
        return None
    exist = all(is_remote(uri) or os.path.isdir(uri) for uri in output.folders.values())
    if not exist:
        return None
    folders = {name: output.folders[name] for name in NEEDED}
    return dataclasses.replace(output, folders=folders)


@reads_store
def _last(store: Store, pipeline: str) -> Transformed | None:
    name = f"{pipeline}.Transform"
    context = store.mlmd.get_context_by_type_and_name("node", name)
    executions = store.mlmd.get_executions_by_context(context.id) if context else []
    done = [each for each in executions if each.last_known_state in _DONE]
    if not done:
        return None
    newest = max(done, key=lambda each: each.id)
    events = store.mlmd.get_events_by_execution_ids([newest.id])
    keys = {event.artifact_id: event.path.steps[0].key for event in events}
    artifacts = store.mlmd.get_artifacts_by_id(list(keys))
    folders = {keys[artifact.id]: artifact.uri for artifact in artifacts}
    return Transformed(folders, newest.create_time_since_epoch / 1000)


@contextlib.contextmanager
def local(transformed: Transformed) -> Iterator[Mapping[str, str]]:
    """Yields local folders, downloaded from an object store.

    Args:
      transformed: From `last`.
    """
    with contextlib.ExitStack() as stack:
        folders = dict(transformed.folders)
        for name, url in transformed.folders.items():
            if filesystems.is_remote(url):
                folder = stack.enter_context(temporary.folder())
                with object_stores.problems_of(url, "run.root", "read"):
                    storage.get(url, folder)
                folders[name] = folder
        yield folders


def worker_spec(config: Config, folders: Mapping[str, str]) -> WorkerSpec:
    """The training of `config` on these examples, without outputs and warm start.

    Args:
      config: The effective settings.
      folders: From `local`.

    Returns:
      A spec with a pattern as `train_files` and a folder as `schema_file`, see
      `measure.with_files`.
    """
    weight = config.weight or ""
    trainer, values = config.trainer, config.runtime_parameters()
    parameters = {
        each.argument: each.decode(values[each.name])
        for each in runtime_parameters.taken_by(node_ids.TRAINER)
    }
    return WorkerSpec(
        folder=str(config.folder),
        module=trainer.module,
        label=learned.label(config.label, folders["transform_graph"], weight),
        weight=weight,
        train_files=(f"{folders['transformed_examples']}/Split-train/*",),
        eval_files=(),
        transform_graph=folders["transform_graph"],
        schema_file=folders["schema"],
        model_dir="",
        log_dir="",
        checkpoint_dir="",
        settings=trainer.settings(),
        **{**parameters, "warm_start": ""},
    )

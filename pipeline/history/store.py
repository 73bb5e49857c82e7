"""A read connection to ML Metadata, with batch queries, without TensorFlow and TFX.

Queries run in batches (contexts by type, executions by node, events and artifacts by
id), so that a history of hundreds of runs takes a fraction of a second.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.pipeline.root import RUN_CONTEXT, metadata, moved_root, recent

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_T = TypeVar("_T")


class NoRunsError(UserError):
    """A root in which nothing has run yet."""


_UNREADABLE = (  # Errors of ML Metadata for a corrupt file or an absent server.
    ml_metadata.errors.AbortedError,
    ml_metadata.errors.DataLossError,
    ml_metadata.errors.FailedPreconditionError,
    ml_metadata.errors.InternalError,
    ml_metadata.errors.UnavailableError,
    RuntimeError,
)
# Set by TFX itself.
_INTERNAL = (
    *("__execution_result__", "__is_null__"),
    *("is_external", "name", "state", "tfx_version"),
)


class Store:
    """An open connection to a root's ML Metadata, for reading.

    Attributes:
      root: The pipeline root; None if unknown.
      mlmd: The `ml_metadata.MetadataStore`.
      is_local: Whether the database is a file, not on a server.
    """

    def __init__(
        self,
        connection: mlmd.ConnectionConfig,
        root: str | Path | None = None,
        *,
        corrects: bool = True,
    ):
        """Connects, and corrects the paths of a root that was moved.

        Never creates a database.

        Args:
          connection: ML Metadata's.
          root: The pipeline root; by default the folder of the SQLite file.
          corrects: Whether to correct paths; otherwise nothing is written.

        Raises:
          NoRunsError: The database does not exist yet.
          UserError: The database cannot be read.
        """
        own = mlmd.ConnectionConfig()
        own.CopyFrom(connection)
        self._connection, self.is_local = own, own.HasField("sqlite")
        if self.is_local:
            path = connection.sqlite.filename_uri
            root = root or os.path.dirname(path)
            if not os.path.exists(path) or os.path.getsize(path) == 0:
                raise NoRunsError(
                    f"no runs yet under {root}. Start one with `strategos run "
                    "pipeline.yaml`, or name the root of another by `--root`."
                )
            own.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE
        self.root = root
        with self.readable():
            self.mlmd = ml_metadata.MetadataStore(own)
            metadata.reject_newer(self.mlmd, own)
            if corrects and self.is_local and root:
                moved_root.follow_if_free(self.mlmd, root)

    @classmethod
    def of(cls, config: Config) -> Store:
        """Opens ML Metadata of the root that the settings name.

        Args:
          config: The effective settings.

        Raises:
          NoRunsError, UserError: As of `Store`.
        """
        return cls(metadata.of(config), root=config.run.root)

    @classmethod
    def empty(cls, root: str) -> Store:
        """Returns a store without any run, in memory.

        Args:
          root: The pipeline root, which has no runs.
        """
        connection = mlmd.ConnectionConfig()
        connection.fake_database.SetInParent()
        return cls(connection, root=root)

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Converts a failure of the database inside the block to an error for users.

        Raises:
          UserError: The database cannot be read.
        """
        try:
            yield
        except _UNREADABLE as error:
            raise metadata.unusable(self._connection, error) from error

    def contexts_of(self, executions: Iterable[int]) -> dict[int, dict[str, str]]:
        """Reads the contexts of executions, by one slow query for each of their runs.

        ML Metadata 1.21 no longer has filtered queries, and a query by execution passes
        over all runs: there is an index by context only. So the contexts of one
        execution serve for our other nodes in the same run.

        Args:
          executions: Ids.

        Returns:
          By execution id, the names of its contexts by context type.
        """
        wanted, known = set(executions), dict[int, dict[str, str]]()
        for execution in sorted(wanted):
            if execution in known:
                continue
            contexts = self.mlmd.get_contexts_by_execution(execution)
            known[execution] = {context.type: context.name for context in contexts}
            run = next((each for each in contexts if each.type == RUN_CONTEXT), None)
            if run and wanted - known.keys():
                known = self._places_in(run, known[execution]) | known
        return {execution: known[execution] for execution in wanted}

    def _places_in(
        self, run: mlmd.Context, place: dict[str, str]
    ) -> dict[int, dict[str, str]]:
        """The contexts of our nodes in a run, as `contexts_of`.

        Args:
          run: The run's context.
          place: The contexts of one of its executions.
        """
        prefix = f"{place['pipeline']}." if "pipeline" in place else ""
        listed = self.mlmd.get_executions_by_context(run.id)
        names = {each.id: each.type.rpartition(".")[2] for each in listed}
        return {
            id: {**place, "node": f"{prefix}{name}"}
            for id, name in names.items()
            if name in node_ids.ALL
        }

    def outputs_of(self, executions: Iterable[int]) -> dict[int, list[mlmd.Artifact]]:
        """Reads the output artifacts of executions.

        Args:
          executions: Ids.

        Returns:
          The artifacts by execution id; executions without outputs are missing.
        """
        pairs = [
            (event.execution_id, event.artifact_id)
            for event in self._events_of(executions)
            if event.type == mlmd.Event.OUTPUT
        ]
        wanted = sorted({artifact for _, artifact in pairs})
        known = self.mlmd.get_artifacts_by_id(wanted) if wanted else []
        artifacts = {artifact.id: artifact for artifact in known}
        outputs: dict[int, list[mlmd.Artifact]] = {}
        for execution, artifact in pairs:
            if artifact in artifacts:  # else the disk was full when it was made
                outputs.setdefault(execution, []).append(artifacts[artifact])
        return outputs

    def producers_of(self, artifacts: Iterable[int]) -> dict[int, int]:
        """Finds the executions that made artifacts, not later ones from the cache.

        Args:
          artifacts: Ids.

        Returns:
          The execution's id by artifact id.
        """
        ids = list(artifacts)
        events = self.mlmd.get_events_by_artifact_ids(ids) if ids else []
        made: dict[int, int] = {}
        for event in events:
            if event.type == mlmd.Event.OUTPUT:
                first = made.get(event.artifact_id, event.execution_id)
                made[event.artifact_id] = min(first, event.execution_id)
        return made

    def upstream(self, *artifacts: int) -> list[mlmd.Event]:
        """Reads the events of all executions that led to artifacts.

        If several executions have the same output artifact, the first made the
        artifact; the others took it from the cache and are left out.

        Args:
          *artifacts: Ids.
        """
        events: list[mlmd.Event] = []
        seen: set[int] = set()
        wanted = set(artifacts)
        while wanted:
            seen |= wanted
            made_by = set(self.producers_of(wanted).values())
            level = self._events_of(made_by)
            events += level
            inputs = {e.artifact_id for e in level if e.type == mlmd.Event.INPUT}
            wanted = inputs - seen
        return list({_key(event): event for event in events}.values())

    def _events_of(self, executions: Iterable[int]) -> list[mlmd.Event]:
        ids = list(executions)
        return list(self.mlmd.get_events_by_execution_ids(ids)) if ids else []


def reads_store(function: Callable[..., _T]) -> Callable[..., _T]:
    """Decorates a function of a `Store`: it runs inside `Store.readable`."""

    @functools.wraps(function)
    def wrapper(store: Store, *args: Any, **kwargs: Any) -> _T:
        with store.readable():
            return function(store, *args, **kwargs)

    return wrapper


def properties(node: mlmd.Artifact | mlmd.Execution | mlmd.Context) -> dict[str, Any]:
    """Properties and custom properties as plain values, without TFX's internal ones."""
    values = {}
    for source in (node.properties, node.custom_properties):
        for key, value in source.items():
            kind = value.WhichOneof("value")
            if kind in ("int_value", "double_value", "string_value", "bool_value"):
                values[key] = getattr(value, kind)
    return {key: value for key, value in values.items() if key not in _INTERNAL}


def newest_pushed(store: Store) -> Iterator[mlmd.Artifact]:
    """Yields the artifacts of `pushed_models`, newest first, as far as needed."""
    for artifact in recent.artifacts(store.mlmd, "PushedModel"):
        if properties(artifact).get("pushed"):
            yield artifact


def pushed_models(store: Store) -> list[mlmd.Artifact]:
    """The PushedModel artifacts of models that were pushed, oldest first."""
    artifacts = store.mlmd.get_artifacts_by_type("PushedModel")
    pushed = [a for a in artifacts if properties(a).get("pushed")]
    return sorted(pushed, key=lambda artifact: artifact.id)


def _key(event: mlmd.Event) -> tuple[int, int, int]:
    return event.execution_id, event.artifact_id, event.type

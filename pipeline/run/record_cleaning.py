"""Removes the records of runs that nothing needs any more from an SQLite database.

ML Metadata's API deletes nothing, and a copy through it has other ids, which name the
folders of artifacts and are in the manifests of pushed versions. So rows are deleted by
SQL, in one transaction: after a kill SQLite restores the rows. A copy of the database
is made first and stays beside it.

Whole runs stay: those with artifacts that `cleaning` keeps, and all that made an
artifact that one of them uses. The lineage ends at baselines: of the run that imported
a baseline, only the importing node stays. `trainer.fresh_every` counts the models since
the last fresh weights, so the runs that made these stay, too.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import commit
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history.contexts import run_contexts
from strategos.pipeline.history.store import Store, reads_store
from strategos.pipeline.root import RUN_CONTEXT, metadata

_OUTPUT = int(mlmd.Event.OUTPUT)

# An artifact that stays keeps the execution that made it, such as a BaselineModel.
_CHOOSE = f"""
CREATE TEMP TABLE gone_runs AS
  SELECT c.id FROM Context c JOIN Type t ON t.id = c.type_id
  WHERE t.name = '{RUN_CONTEXT}' AND c.name IN (SELECT name FROM unneeded);
CREATE TEMP TABLE gone_executions AS
  SELECT execution_id AS id FROM Association WHERE context_id IN gone_runs
  EXCEPT SELECT a.execution_id FROM Association a
    JOIN Context c ON c.id = a.context_id JOIN Type t ON t.id = c.type_id
    WHERE t.name = '{RUN_CONTEXT}' AND c.id NOT IN gone_runs;
CREATE TEMP TABLE used AS SELECT DISTINCT artifact_id AS id FROM Event
  WHERE execution_id NOT IN gone_executions;
DELETE FROM gone_executions WHERE id IN (SELECT min(execution_id) FROM Event
  WHERE type = {_OUTPUT} AND artifact_id IN used GROUP BY artifact_id);
CREATE TEMP TABLE gone_artifacts AS SELECT artifact_id AS id FROM Event
  WHERE execution_id IN gone_executions
  EXCEPT SELECT artifact_id FROM Event WHERE execution_id NOT IN gone_executions;
"""
_DELETE = """
DELETE FROM Event
  WHERE execution_id IN gone_executions OR artifact_id IN gone_artifacts;
DELETE FROM EventPath WHERE event_id NOT IN (SELECT id FROM Event);
DELETE FROM Association
  WHERE execution_id IN gone_executions OR context_id IN gone_runs;
DELETE FROM ExecutionProperty WHERE execution_id IN gone_executions;
DELETE FROM Execution WHERE id IN gone_executions;
DELETE FROM ArtifactProperty WHERE artifact_id IN gone_artifacts;
DELETE FROM Artifact WHERE id IN gone_artifacts;
DELETE FROM Attribution WHERE artifact_id IN gone_artifacts;
INSERT INTO gone_runs SELECT c.id FROM Context c JOIN Type t ON t.id = c.type_id
  WHERE t.name = 'execution_cache' AND c.id NOT IN (SELECT context_id FROM Association)
  OR t.name = 'node_key' AND c.id NOT IN (SELECT context_id FROM Attribution);
DELETE FROM Attribution WHERE context_id IN gone_runs;
DELETE FROM ParentContext
  WHERE context_id IN gone_runs OR parent_context_id IN gone_runs;
DELETE FROM ContextProperty WHERE context_id IN gone_runs;
DELETE FROM Context WHERE id IN gone_runs;
"""
_DANGLING = """
SELECT count(*) FROM Event WHERE artifact_id NOT IN (SELECT id FROM Artifact)
  OR execution_id NOT IN (SELECT id FROM Execution)
UNION ALL SELECT count(*) FROM Association
  WHERE context_id NOT IN (SELECT id FROM Context)
  OR execution_id NOT IN (SELECT id FROM Execution)
UNION ALL SELECT count(*) FROM Attribution
  WHERE context_id NOT IN (SELECT id FROM Context)
  OR artifact_id NOT IN (SELECT id FROM Artifact)
"""


def check(config: Config) -> None:
    """Rejects a database that is no file.

    Args:
      config: The effective settings.

    Raises:
      BadInputError: ML Metadata is on a server.
    """
    if config.run.metadata != "sqlite":
        raise BadInputError(
            "ML Metadata is on a server, whose records other pipelines may share",
            key="--records",
            expected="`run.metadata: sqlite`",
            remedy="Leave `--records` out: artifacts are removed, and records stay.",
        )


@reads_store
def unneeded(
    store: Store, kept: Iterable[str], fresh_every: int | None = None
) -> list[str]:
    """The ids of the runs with removable records, the newest first.

    Args:
      store: The root's ML Metadata.
      kept: The ids of the runs that keep their artifacts, from `cleaning.kept_runs`.
      fresh_every: `trainer.fresh_every`: as many models are counted back to the one
        that began with fresh weights, so their records stay.
    """
    known = [context.name for context in run_contexts(store)]
    stay: set[str] = set()
    counted = set(kept)
    for _ in range(1, fresh_every or 1):
        counted |= _origins(store, counted.intersection(known))
    todo = [name for name in known if name in counted]
    while todo:
        stay.update(todo)
        todo = [x for x in _makers(store, todo) if x not in stay]
    return [name for name in known if name not in stay]


def _makers(store: Store, runs: Iterable[str]) -> set[str]:
    """The runs that made artifacts which some runs use, except for baselines."""
    ids, artifacts = _contents(store, runs)
    others = sorted({*store.producers_of(artifacts).values()} - {*ids})
    producers = store.mlmd.get_executions_by_id(others) if others else []
    wanted = [x.id for x in producers if not x.type.endswith(node_ids.BASELINE_MODEL)]
    return _runs_of(store, wanted)


def _origins(store: Store, runs: Iterable[str]) -> set[str]:
    """The runs that made the models which those of some runs started from."""
    _, used = _contents(store, runs)
    artifacts = store.mlmd.get_artifacts_by_id(sorted(used)) if used else []
    weights = {x.custom_properties["warm_start"].string_value for x in artifacts}
    folders = {os.path.dirname(each) for each in weights} - {""}
    found = map(store.mlmd.get_artifacts_by_uri, sorted(folders))
    models = [model.id for each in found for model in each]
    return _runs_of(store, store.producers_of(models).values())


def _contents(store: Store, runs: Iterable[str]) -> tuple[list[int], set[int]]:
    """The executions of runs, and the artifacts that they made or used."""
    contexts = (store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, x) for x in runs)
    listed = [store.mlmd.get_executions_by_context(each.id) for each in contexts]
    ids = [execution.id for executions in listed for execution in executions]
    events = store.mlmd.get_events_by_execution_ids(ids) if ids else []
    return ids, {event.artifact_id for event in events}


def _runs_of(store: Store, executions: Iterable[int]) -> set[str]:
    places = store.contexts_of(executions).values()
    return {place[RUN_CONTEXT] for place in places if RUN_CONTEXT in place}


def remove(root: str, runs: Iterable[str]) -> Path:
    """Removes the records of runs; the caller holds the root's lock.

    Args:
      root: The root.
      runs: From `unneeded`, under the same lock.

    Returns:
      The copy of the database as it was.

    Raises:
      UserError: The copy cannot be written, or the database is damaged. Nothing is
        removed then.
    """
    file, copy = metadata.sqlite_file(root), metadata.next_before_clean(root)
    try:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as own:
            _copy(own, copy, file.stat().st_mode & 0o777)
            with _transaction(own):
                own.execute("CREATE TEMP TABLE unneeded (name TEXT PRIMARY KEY)")
                rows = [(name,) for name in runs]
                own.executemany("INSERT INTO unneeded VALUES (?)", rows)
                for statement in filter(str.strip, (_CHOOSE + _DELETE).split(";")):
                    own.execute(statement)
                if any(count for (count,) in own.execute(_DANGLING)):
                    raise sqlite3.DatabaseError("a record would lack its other end")
            own.execute("VACUUM")
    except (sqlite3.Error, OSError) as error:
        raise UserError(
            f"the records cannot be removed: {error}",
            key="--records",
            received=str(file),
            remedy=f"See whether the disk is full. {copy} has the records as they were "
            "if it exists.",
        ) from error
    return copy


def _copy(database: sqlite3.Connection, target: Path, mode: int) -> None:
    """Copies a database to a file, whole or not at all."""
    with commit.aside(target, f"{target.name}.part") as made:
        made.touch(mode)
        with contextlib.closing(sqlite3.connect(made)) as copy:
            database.backup(copy)
            (answer,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(answer)


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")

"""Everything that ML Metadata and artifacts know of one run, read for its report."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.pipeline.history import lineage, runs
from strategos.pipeline.history.lineage import Lineage, LineageStep
from strategos.pipeline.history.runs import Run
from strategos.pipeline.history.store import Store, reads_store
from strategos.pipeline.made_from import record as kept_record
from strategos.pipeline.made_from.record import MadeFrom
from strategos.pipeline.root import RUN_CONTEXT, boosted_trees, recent
from strategos.pipeline.root.boosted_trees import Trees

_STATISTICS = "ExampleStatistics"
_FURTHER = (node_ids.DETAILED_STATISTICS, node_ids.TRANSFORMED_STATISTICS)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Statistics of the data of a run.

    Attributes:
      run_id: The run that computed them.
      folder: Their folder.
    """

    run_id: str
    folder: Path


@dataclasses.dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
      run: The run in full.
      steps: Its nodes with their parameters and outputs, in the order of their starts;
        a cached node has the outputs of an earlier run.
      lineage: The lineage of its model, or else of its last artifact; None without one.
      made_from: Its settings and stack; None if this machine has no record of them.
      trees: The metric of trees on its rows; None if none were trained.
      before: Statistics of the data of an earlier run; None without any.
    """

    run: Run
    steps: tuple[LineageStep, ...]
    lineage: Lineage | None
    made_from: MadeFrom | None = None
    trees: Trees | None = None
    before: Statistics | None = None

    def facts(self, node: str) -> dict[str, Any]:
        """Parameters of a node and properties of its outputs; {} if it did not run."""
        return next((step.facts() for step in self.steps if step.node == node), {})

    def folder(self, node: str, kind: str) -> Path | None:
        """The folder of an output of a node, if it can be read from this machine.

        Args:
          node: The node's id.
          kind: The type of the artifact.
        """
        outputs = (
            out for step in self.steps if step.node == node for out in step.outputs
        )
        folders = (Path(out.uri) for out in outputs if out.type == kind)
        return next(filter(Path.is_dir, folders), None)

    def json(self, node: str, kind: str, name: str) -> dict[str, Any] | None:
        """The content of a JSON file in an output of a node; None if it has none.

        Args:
          node: The node's id.
          kind: The type of the artifact.
          name: Name of the file.
        """
        folder = self.folder(node, kind)
        if folder:
            with contextlib.suppress(OSError, ValueError):
                return dict(json.loads((folder / name).read_text()))
        return None


@reads_store
def read(store: Store, run_id: str | None = None) -> Record:
    """Reads a run, which may still be running.

    Args:
      store: The root's ML Metadata.
      run_id: The run's id, or its beginning; None for the last run.

    Raises:
      UserError: No such run exists.
    """
    run = runs.run(store, run_id)
    steps = lineage.steps_of(store, run.run_id)
    made = [output.id for step in steps for output in step.outputs]
    traced = None
    for model in (run.run_id, *map(str, made[-1:])):
        with contextlib.suppress(UserError):
            traced = lineage.lineage(store, model)
            break
    kept = None
    with contextlib.suppress(UserError, OSError, ValueError):
        kept = kept_record.read(str(store.root), run.run_id, run.log).made_from
    read = Record(run, steps, traced, kept)
    examples = read.folder(node_ids.EXAMPLE_GEN, "Examples")
    beside = (
        boosted_trees.recorded(str(store.root), str(examples)) if examples else None
    )
    earlier = _before(store, read)
    return dataclasses.replace(read, trees=beside, before=earlier)


def _before(store: Store, read: Record) -> Statistics | None:
    """The newest statistics of the pipeline that are older than those of a run."""
    steps = (step for step in read.steps if step.node not in _FURTHER)
    made = (out for step in steps for out in step.outputs)
    own = next((out.id for out in made if out.type == _STATISTICS), None)
    if own is None:
        return None
    for artifact in recent.artifacts(store.mlmd, _STATISTICS):
        folder = Path(artifact.uri)
        if artifact.id >= own or not folder.is_dir():
            continue
        maker = store.producers_of([artifact.id]).get(artifact.id)
        places = store.contexts_of([maker]).get(maker, {}) if maker else {}
        node = places.get("node", "").rpartition(".")[2]
        if node not in _FURTHER and places.get("pipeline") == read.run.pipeline:
            return Statistics(places.get(RUN_CONTEXT, ""), folder)
    return None

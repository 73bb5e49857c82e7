"""Runs on Kubeflow Pipelines as they are compared, explained and made again here.

They are known by the records that their steps have left below `kubeflow.root`. Files
that these name in the image, below `/workload`, are on this machine in
`kubeflow.context`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import exported, node_ids
from strategos.components.container import mounts
from strategos.components.errors import UserError
from strategos.components.files import object_stores, storage
from strategos.components.files.filesystems import is_remote
from strategos.pipeline import api
from strategos.pipeline.comparing import reasons
from strategos.pipeline.comparing.reasons import Execution, Reason
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.config.cluster.types import WORKLOAD
from strategos.pipeline.history import runs
from strategos.pipeline.history.runs import Run
from strategos.pipeline.made_from.record import Kept
from strategos.pipeline.remote import step_records

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


@dataclasses.dataclass(frozen=True)
class ClusterRuns:
    """The runs of a pipeline that have left records.

    Attributes:
      config: The settings, with the section `kubeflow`.
      listed: The runs, the newest first; at least one.
    """

    config: Config
    listed: Sequence[Run]

    @property
    def root(self) -> str:
        """`kubeflow.root`."""
        assert self.config.kubeflow
        return self.config.kubeflow.root

    def kept(self, run_id: str, log: str | None = None) -> Kept:
        """The record of a run's settings, code, data and stack.

        Args:
          run_id: The run's id.
          log: Is on the cluster.

        Raises:
          UserError: This machine cannot read the object store, or the run has no
            record.
        """
        del log
        return step_records.kept(self.root, self.config.name, run_id)

    def kept_here(self, run_id: str) -> Kept:
        """As `kept`, with the paths of this machine for those in the image."""
        assert self.config.kubeflow
        return here(self.kept(run_id), self.config.kubeflow.context)

    def of_model(self, model: str) -> Run:
        """The run with an id, or that pushed a version.

        Args:
          model: The id or its beginning; the number or path of a version.

        Raises:
          UserError: No run has it.
        """
        for run in self.listed:
            if run.pushed and model.rstrip("/") in run.pushed:
                return run
        return runs.chosen(self.listed, model)

    def model(self, run: Run, folder: Path) -> str:
        """Downloads the SavedModel of a run; returns its folder.

        Args:
          run: The run.
          folder: A folder for it.

        Raises:
          UserError: This machine cannot read it, or it is gone.
        """
        read = step_records.found(run, self.root)
        made = step_records.made({node: record for node, (_, record) in read.items()})
        urls = [
            f"{mounts.opened_by_workers(each.uri)}/{exported.SERVING_DIR}"
            for each in made.get(node_ids.TRAINER, ())
            if each.type == "Model"
        ]
        for place in [*urls, *(run.pushed or ())[:1]]:
            if is_remote(place) and _is_downloaded(place, str(folder)):
                return str(folder)
            if os.path.isfile(os.path.join(place, exported.SAVED_MODEL)):
                return place
        raise UserError(
            f"run {run.run_id}: neither its model nor the version that was pushed of "
            "it can be read from this machine, so there is nothing to compare with"
        )

    def reasons(self, run: Run) -> tuple[Reason, ...]:
        """Why each node of a run ran, or was taken from the cache.

        Args:
          run: The run.

        Raises:
          UserError: This machine cannot read the object store.
        """
        before = step_records.before(run, self.root)
        read = step_records.found(run, self.root)
        ids = {run.run_id, *(run_id for run_id, _ in before.values())}
        records = {run_id: self._kept_or_none(run_id) for run_id in ids}
        states = {node.name: node.state for node in run.nodes}
        return tuple(
            reasons.of_cached(node, "cached", made_by)
            if states[node] == "cached"
            else reasons.of_executed(
                node,
                states[node],
                self._execution(*before[node], records) if node in before else None,
                self._execution(made_by, record, records),
                records,
            )
            for node, (made_by, record) in read.items()
            if node != node_ids.RESOLVE
        )

    def _execution(
        self,
        run_id: str,
        record: Mapping[str, Any],
        records: Mapping[str, Kept | None],
    ) -> Execution:
        """An execution as its record has it, with the image that it ran in."""
        kept = records[run_id]
        section = kept.made_from.settings["kubeflow"] if kept else {}
        parameters = reasons.decoded(record.get("parameters", {}))
        made = step_records.inputs(dict(record), self.root, self.config.name)
        return Execution(
            run_id=run_id,
            parameters={**parameters, "image": section.get("image")},
            inputs={f"{node}.{name}": maker for maker, node, name in made},
            makers={f"{node}.{name}": node for _, node, name in made},
        )

    def _kept_or_none(self, run_id: str) -> Kept | None:
        try:
            return self.kept(run_id)
        except UserError:
            return None


def opened(
    pipeline: str | None,
    root: str | None,
    limit: int | None = None,
    named: str = "",
) -> ClusterRuns | None:
    """The runs with records below `kubeflow.root`; None without any.

    Args:
      pipeline: The YAML on the command line, if any.
      root: The value of `--root`, if any; a root has no such runs.
      limit: As for `step_records.history`.
      named: As for `step_records.history`.

    Raises:
      UserError: This machine cannot read the object store.
    """
    if root or not (pipeline or Path(MAIN_FILE).is_file()):
        return None
    config = api.load(pipeline or MAIN_FILE).config
    if not config.kubeflow:
        return None
    root = config.kubeflow.root
    listed = step_records.history(root, config.name, limit, named)
    return ClusterRuns(config, listed) if listed else None


def here(kept: Kept, context: str) -> Kept:
    """A record with the paths of this machine for those in the image.

    Args:
      kept: The record.
      context: `kubeflow.context`.
    """
    made = kept.made_from
    data = [
        dataclasses.replace(file, path=_here(file.path, context)) for file in made.data
    ]
    moved = dataclasses.replace(
        made,
        settings=_here(made.settings, context),
        yaml=_here(made.yaml, context),
        data=data,
    )
    return dataclasses.replace(kept, made_from=moved)


def _here(value: Any, context: str) -> Any:
    """A value with the paths of this machine for those in the image."""
    if isinstance(value, str) and f"{value}/".startswith(f"{WORKLOAD}/"):
        return f"{context}{value.removeprefix(WORKLOAD)}"
    if isinstance(value, Mapping):
        return {name: _here(each, context) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_here(each, context) for each in value]
    return value


def _is_downloaded(url: str, folder: str) -> bool:
    """Downloads the objects below a URL; returns False if they are gone."""
    try:
        with object_stores.problems_of(url, "kubeflow.root", "read"):
            storage.get(url, folder)
    except UserError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return False
    return True

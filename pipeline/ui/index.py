"""The runs and evaluations of a root, kept in memory: a page reads only new ones.

ML Metadata cannot filter or sort on the server, and has no index that leads from an
artifact to its run. So all runs and evaluations are read once, at the start of the
server, and at each page those added since.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.components.evaluation.metrics import METRICS, bare
from strategos.pipeline.history.contexts import named, running, started
from strategos.pipeline.history.store import Store, properties
from strategos.pipeline.root import RUN_CONTEXT, recent

_OPEN = 100  # newest unfinished records that are read again at each page
_CLOCK_SECONDS = 1.0  # between the clocks of a run and of ML Metadata
_TRIED = 5  # runs that may have made an evaluation, by their times
_SEARCHED = ("reason", "cause", "failed_node", "config")  # of a run
_PLACE = re.compile(rf"/([^/]+)/{node_ids.EVALUATOR}/evaluation/[^/]+/?$")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run.

    Attributes:
      context: The id of its context in ML Metadata.
      run_id: Its id.
      pipeline: The pipeline's name; "" if unknown.
      started: Unix seconds.
      outcome: As of `runs.Run`.
      text: Searchable text, in lower case: id, pipeline, reason and error.
    """

    context: int
    run_id: str
    pipeline: str
    started: float
    outcome: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of a model that some run evaluated; others may have reused it.

    Attributes:
      artifact: The id of the ModelEvaluation artifact.
      pipeline: The pipeline's name; "" if unknown.
      made_at: Unix seconds.
      metrics: Metrics over all rows that are defined.
    """

    artifact: int
    pipeline: str
    made_at: float
    metrics: Mapping[str, float]


class Index:
    """All runs and evaluations of a root, as of the last `update`."""

    def __init__(self) -> None:
        self._contexts: dict[int, Entry] = {}
        self._evaluations: dict[int, Evaluation] = {}
        self._oldest_first: list[Entry] = []
        self._last_context = self._last_artifact = 0  # of any type
        self._running: Collection[str] = ()
        self._origins: dict[int, Entry | None] = {}  # of evaluations

    def update(self, store: Store) -> None:
        """Reads new runs and evaluations, and again the unfinished runs.

        Args:
          store: The root's ML Metadata.

        Raises:
          UserError: ML Metadata cannot be read.
        """
        with store.readable():
            self._running = running(store)
            self._update_runs(store)
            self._update_evaluations(store)

    def runs(
        self, pipeline: str | None = None, outcome: str = "", search: str = ""
    ) -> list[Entry]:
        """Runs, the newest first.

        Args:
          pipeline: Only those of this pipeline; None for all.
          outcome: Only those with this outcome; "" for all.
          search: Only those with all of these words in their text.
        """
        words = search.lower().split()
        return [
            each
            for each in reversed(self._oldest_first)
            if pipeline in (None, each.pipeline)
            and outcome in ("", each.outcome)
            and all(word in each.text for word in words)
        ]

    def find(self, run_id: str) -> str:
        """The id of a run, if there is such a run.

        Args:
          run_id: The id.

        Raises:
          UserError: No such run exists.
        """
        if all(each.run_id != run_id for each in self._oldest_first):
            raise UserError(f"run {run_id}: no such run on this root")
        return run_id

    def outcomes(self, pipeline: str | None = None, search: str = "") -> dict[str, int]:
        """Number of runs by outcome, the most frequent first.

        Args:
          pipeline: As for `runs`.
          search: As for `runs`.
        """
        counts = Counter(each.outcome for each in self.runs(pipeline, search=search))
        return dict(counts.most_common())

    def evaluations(self, pipeline: str | None = None) -> list[Evaluation]:
        """Evaluations with metrics, the newest first.

        Args:
          pipeline: As for `runs`.
        """
        return [
            each
            for each in sorted(self._evaluations.values(), key=lambda x: -x.artifact)
            if each.metrics and pipeline in (None, "", each.pipeline)
        ]

    def run_of(self, store: Store, evaluation: Evaluation) -> Entry | None:
        """The run that made an evaluation; None if it is unknown.

        The runs that had started at that time are checked first: a query by the
        execution would pass over all runs.

        Args:
          store: The root's ML Metadata.
          evaluation: From this index.
        """
        id = evaluation.artifact
        if id not in self._origins:
            with store.readable():
                self._origins[id] = self._origin(store, evaluation)
        return self._origins[id]

    def _update_runs(self, store: Store) -> None:
        before, last = self._last_context, recent.last_id(store.mlmd.get_contexts)
        listed = recent.runs(store.mlmd) if last > before else iter(())
        new = itertools.takewhile(lambda each: each.id > before, listed)
        unfinished = [
            each.context
            for each in self._contexts.values()
            if each.outcome in ("running", "interrupted")
        ]
        again = sorted(unfinished)[-_OPEN:]
        contexts = [*new, *(store.mlmd.get_contexts_by_id(again) if again else ())]
        for context, name in named(store, contexts) if contexts else ():
            self._contexts[context.id] = self._entry(context, name)
        if contexts:
            known = self._contexts.values()
            self._oldest_first = sorted(known, key=lambda each: each.started)
        self._last_context = last

    def _entry(self, context: mlmd.Context, pipeline: str) -> Entry:
        is_running = context.name in self._running
        facts = properties(context)
        outcome = facts.get("outcome") or ("running" if is_running else "interrupted")
        error = json.loads(facts["error"]) if facts.get("error") else {}
        texts = [context.name, pipeline, error.get("message", "")]
        text = " ".join([*texts, *(facts.get(x, "") for x in _SEARCHED)]).lower()
        begun = started(context)
        return Entry(context.id, context.name, pipeline, begun, outcome, text)

    def _update_evaluations(self, store: Store) -> None:
        before, last = self._last_artifact, recent.last_id(store.mlmd.get_artifacts)
        listed = recent.artifacts(store.mlmd, "ModelEvaluation")
        listed = listed if last > before else iter(())
        new = itertools.takewhile(lambda each: each.id > before, listed)
        # An artifact is recorded before its node has written its metrics.
        without = [id for id, each in self._evaluations.items() if not each.metrics]
        again = sorted(without)[-_OPEN:]
        artifacts = [*new, *(store.mlmd.get_artifacts_by_id(again) if again else ())]
        self._evaluations |= {each.id: _evaluation(each) for each in artifacts}
        self._last_artifact = last

    def _origin(self, store: Store, evaluation: Evaluation) -> Entry | None:
        producer = store.producers_of([evaluation.artifact]).get(evaluation.artifact)
        if producer is None:
            return None
        begun = [each.started for each in self._oldest_first]
        end = bisect.bisect_right(begun, evaluation.made_at + _CLOCK_SECONDS)
        for entry in reversed(self._oldest_first[max(0, end - _TRIED) : end]):
            made = store.mlmd.get_executions_by_context(entry.context)
            if any(each.id == producer for each in made):
                return entry
        run_id = store.contexts_of([producer])[producer].get(RUN_CONTEXT)
        same = (each for each in self._oldest_first if each.run_id == run_id)
        return next(same, None)


def ranked(listed: Sequence[Evaluation], metric: str) -> list[Evaluation]:
    """Evaluations with a metric, the best first; equal ones in the given order.

    Args:
      listed: Evaluations.
      metric: A metric's name. If it is not installed here, larger values come first.
    """
    having = [each for each in listed if metric in each.metrics]
    known = bare(metric)
    worse = METRICS[known].badness if known in METRICS else float.__neg__
    return sorted(having, key=lambda each: worse(each.metrics[metric]))


def _evaluation(artifact: mlmd.Artifact) -> Evaluation:
    match = _PLACE.search(artifact.uri)
    metrics = {
        name: value
        for name, value in properties(artifact).items()
        if isinstance(value, float) and math.isfinite(value)
    }
    made_at = artifact.create_time_since_epoch / 1000
    return Evaluation(artifact.id, match[1] if match else "", made_at, metrics)

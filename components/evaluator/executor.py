"""Evaluates the candidate and the model in production on the eval split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils
from tfx.utils import path_utils

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.evaluation import scoring
from strategos.components.evaluation.inputs import rows, unfit
from strategos.components.evaluation.inputs.models import Location, loaded
from strategos.components.evaluation.library.classes import is_known
from strategos.components.evaluation.metrics import bare
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.sums import Sums
from strategos.components.evaluator.judging import Artifacts, Evaluation
from strategos.components.evaluator.tfma.eval_config import BASELINE, CANDIDATE
from strategos.components.files import listing
from strategos.components.records import counts
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.targets.label import Label
from strategos.components.wording import choices, did_you_mean, listed

SPLIT = "eval"
DTYPES = {
    schema_pb2.BYTES: tf.string,
    schema_pb2.INT: tf.int64,
    schema_pb2.FLOAT: tf.float32,
}


class Executor(EngineExecutor):
    """Writes the evaluation and the blessing; a poor model does not stop the run."""

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluates; see `component.Evaluator` for inputs, outputs and properties.

        Raises:
          UserError: The label, the slices or a model do not fit the examples.
        """
        evaluation = Evaluation.of(input_dict, output_dict, exec_properties)
        if (kept := evaluation.kept()) is not None:
            evaluation.judge_again(kept)
            return
        _announce(evaluation.metrics)
        scorer = scoring.Scorer(_question(evaluation), _models(evaluation))
        scored = self._score(input_dict, output_dict, scorer)
        evaluation.keep(scored)
        evaluation.judge(scored)

    def _score(
        self, inputs: Artifacts, outputs: Artifacts, scorer: scoring.Scorer
    ) -> Scored:
        (examples,), (evaluation,) = inputs["examples"], outputs["evaluation"]
        files, scored = _files(inputs), Scored(Sums((), ""))
        expected = counts.recorded([examples], SPLIT)
        progress.begin(expected or None)
        try:
            if files:
                scored = scoring.scored(self._engine, files, scorer, evaluation.uri)
        finally:
            loaded.forget()
        progress.end(scored.sums.examples)
        folder = f"{examples.uri}/Split-{SPLIT}"
        counts.check(folder, scored.sums.examples, expected)
        unfit.check(scored, scorer.question)
        return scored


def _announce(metrics: Sequence[str]) -> None:
    """Notes the metrics that take longer than the others."""
    by_tfma = [name for name in metrics if is_known(bare(name))]
    if by_tfma:
        verb = "is" if len(by_tfma) == 1 else "are"
        events.emit(
            "note",
            message=f"Evaluator: {listed(by_tfma)} {verb} computed by TFMA, row by row",
        )


def _question(evaluation: Evaluation) -> rows.Question:
    features = evaluation.schema.feature
    known = {feature.name: DTYPES.get(feature.type) for feature in features}
    label, weight, slices = evaluation.label, evaluation.weight, evaluation.slices
    query = [evaluation.query] if evaluation.query else []
    named = [("evaluator.slices", name) for name in slices]
    for key, name in [*named, *(("evaluator.query", name) for name in query)]:
        if known.get(name) is None:
            raise UserError(
                "the schema has no such feature",
                key=key,
                received=f"`{name}`",
                expected=choices(sorted(known)),
                remedy=did_you_mean(name, known),
            )
    # A label or weight that is not among the raw features is made by preprocessing.
    read = *Label.of(label).withheld, weight
    raw = [name for name in read if known.get(name) is not None]
    wanted = {name: known[name] for name in [*raw, *slices, *query]}
    return rows.Question.of(evaluation.evaluator, label, weight, wanted)


def _models(evaluation: Evaluation) -> tuple[Location, ...]:
    uri = artifact_utils.get_single_uri(evaluation.inputs["model"])
    candidate = Location(CANDIDATE, "candidate", path_utils.serving_model_dir(uri))
    if (baseline := evaluation.baseline) is None:
        return (candidate,)
    path = path_utils.serving_model_dir(baseline.uri)
    return candidate, Location(BASELINE, "model in production", path, optional=True)


def _files(inputs: Artifacts) -> list[str]:
    return [
        file
        for uri in artifact_utils.get_split_uris(inputs["examples"], SPLIT)
        for file in listing.listed(uri)
    ]

"""Evaluates the candidate and the model in production on the eval split."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_model_analysis.constants import BASELINE_KEY, CANDIDATE_KEY
from tensorflow_model_analysis.proto import config_pb2
from tfx import types
from tfx.components.evaluator import constants
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.evaluation import findings, scoring, summary
from strategos.components.evaluation.metrics import metric_names, sliced_features
from strategos.components.evaluation.models import Location, loaded
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.sums import Sums
from strategos.components.evaluator.tfma import eval_config, result_files
from strategos.components.files import storage
from strategos.components.records import counts
from strategos.components.schema_file import read_schema
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.shards.fold import fold
from strategos.components.wording import choices, did_you_mean

SPLIT = "eval"
DTYPES = {
    schema_pb2.BYTES: tf.string,
    schema_pb2.INT: tf.int64,
    schema_pb2.FLOAT: tf.float32,
}

Artifacts = dict[str, list[types.Artifact]]


class Executor(EngineExecutor):
    """Writes TFMA's files, `summary.json` and the blessing; never stops the run."""

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
        settings = json.loads(exec_properties["settings"])
        evaluator, label = settings["evaluator"], settings["label"]
        baseline = _baseline(input_dict)
        question = _question(evaluator, label, _schema(input_dict))
        models = _models(input_dict, baseline)
        scored = self._score(input_dict, output_dict, scoring.Scorer(question, models))
        incomparable = scored.unusable.get(BASELINE_KEY, "")
        if incomparable:
            baseline, models = None, models[:1]
        slices = scored.sums.metrics(*(model.name for model in models))
        bounds = evaluator.get("bounds") or {}
        checks = summary.judge(bounds, slices, incomparable=bool(incomparable))
        verdict = summary.summarize(
            task=evaluator["task"],
            label=label,
            slices=slices,
            checks=checks,
            without_value=scored.sums.without_value(),
            incomparable=incomparable,
            **findings.of(scored, slices, evaluator, label, CANDIDATE_KEY),
        )
        for warning in verdict["warnings"]:
            events.emit("warning", message=warning)

        (evaluation,) = output_dict["evaluation"]
        config = _effective(evaluator, baseline, question)
        result_files.write(
            evaluation.uri,
            config,
            slices,
            checks,
            blessed=verdict["blessed"],
            data=artifact_utils.get_single_uri(input_dict["examples"]),
            models=_locations(config, models),
        )
        _write_summary(evaluation, verdict)
        _bless(output_dict["blessing"][0], verdict["blessed"], input_dict, baseline)
        logging.info("blessed: %s; %s", verdict["blessed"], verdict["reason"])

    def _score(
        self, inputs: Artifacts, outputs: Artifacts, scorer: scoring.Scorer
    ) -> Scored:
        (examples,), (evaluation,) = inputs["examples"], outputs["evaluation"]
        shards, scored = scoring.shards(_files(inputs)), Scored(Sums((), ""))
        expected = counts.recorded([examples], SPLIT)
        progress.begin(expected or None)
        try:
            if shards:
                with scorer.sent(self._engine.exchange) as work:
                    merge = Scored.merge
                    scored = fold(self._engine, shards, work, merge, evaluation.uri)
        finally:
            loaded.forget()
        progress.end(scored.sums.examples)
        folder = f"{examples.uri}/Split-{SPLIT}"
        counts.check(folder, scored.sums.examples, expected)
        scoring.check(scored, scorer.question)
        return scored


def _baseline(inputs: Artifacts) -> types.Artifact | None:
    for artifact in inputs.get("baseline_model") or []:
        if artifact.get_int_custom_property("none") != 1:
            return artifact
    return None


def _effective(
    evaluator: dict[str, Any],
    baseline: types.Artifact | None,
    question: scoring.Question,
) -> config_pb2.EvalConfig:
    label = question.label
    config = eval_config.build(evaluator, label, question.types[label] == tf.string)
    config = tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=baseline is not None, rubber_stamp=True
    )
    tfma.utils.verify_eval_config(config)
    return config


def _schema(inputs: Artifacts) -> schema_pb2.Schema:
    uri = artifact_utils.get_single_uri(inputs["schema"])
    return read_schema(io_utils.get_only_uri_in_dir(uri))


def _question(
    evaluator: dict[str, Any], label: str, schema: schema_pb2.Schema
) -> scoring.Question:
    known = {feature.name: DTYPES.get(feature.type) for feature in schema.feature}
    slices = sliced_features(evaluator)
    for key, name in [("label", label), *(("evaluator.slices", s) for s in slices)]:
        if known.get(name) is None:
            raise UserError(
                "the schema has no such feature",
                key=key,
                received=f"`{name}`",
                expected=choices(sorted(known)),
                remedy=did_you_mean(name, known),
            )
    wanted = {name: known[name] for name in [label, *slices]}
    metrics = tuple(metric_names(evaluator))
    arguments = evaluator["task"], metrics, label, tuple(slices), wanted
    return scoring.Question(*arguments, evaluator.get("from_logits"))


def _models(inputs: Artifacts, baseline: types.Artifact | None) -> tuple[Location, ...]:
    uri = artifact_utils.get_single_uri(inputs["model"])
    candidate = Location(CANDIDATE_KEY, "candidate", path_utils.serving_model_dir(uri))
    if baseline is None:
        return (candidate,)
    path = path_utils.serving_model_dir(baseline.uri)
    role = "model in production"
    return candidate, Location(BASELINE_KEY, role, path, optional=True)


def _files(inputs: Artifacts) -> list[str]:
    return [
        file
        for uri in artifact_utils.get_split_uris(inputs["examples"], SPLIT)
        for file in storage.listed(uri)
    ]


def _locations(
    config: config_pb2.EvalConfig, models: Sequence[Location]
) -> dict[str, str]:
    specs = sorted(config.model_specs, key=lambda spec: spec.is_baseline)
    return {spec.name: model.path for spec, model in zip(specs, models, strict=True)}


def _write_summary(evaluation: types.Artifact, verdict: dict[str, Any]) -> None:
    io_utils.write_string_file(
        os.path.join(evaluation.uri, summary.FILE), json.dumps(verdict, indent=1)
    )
    for name, value in verdict["overall"].items():
        if value is not None:
            evaluation.set_float_custom_property(name, value)
    evaluation.set_int_custom_property("examples", verdict["examples"])
    evaluation.set_int_custom_property("blessed", int(verdict["blessed"]))
    evaluation.set_string_custom_property("reason", verdict["reason"])


def _bless(
    blessing: types.Artifact,
    blessed: bool,
    inputs: Artifacts,
    baseline: types.Artifact | None,
) -> None:
    """Writes the file and the properties of the blessing of TFX's Evaluator."""
    models: Sequence[tuple[str, str, types.Artifact | None]] = (
        (
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY,
            inputs["model"][0],
        ),
        (
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY,
            baseline,
        ),
    )
    for uri_key, id_key, model in models:
        if model is not None:
            blessing.set_string_custom_property(uri_key, model.uri)
            blessing.set_int_custom_property(id_key, model.id)
    name = constants.BLESSED_FILE_NAME if blessed else constants.NOT_BLESSED_FILE_NAME
    io_utils.write_string_file(os.path.join(blessing.uri, name), "")
    blessing.set_int_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSED_KEY,
        constants.BLESSED_VALUE if blessed else constants.NOT_BLESSED_VALUE,
    )

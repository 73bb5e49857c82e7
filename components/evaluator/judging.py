"""Judges an evaluation by its sums, and writes the artifacts; imports no TensorFlow."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from strategos.components import events
from strategos.components.evaluation import kept
from strategos.components.evaluation.heads import verdict as verdicts
from strategos.components.evaluation.metrics import metric_names
from strategos.components.evaluation.outcome import blessing as blessings
from strategos.components.evaluation.outcome import summary
from strategos.components.evaluation.plots import FILE as ANSWERS
from strategos.components.evaluation.plots import points
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices.slicing import slicings
from strategos.components.evaluator import SETTINGS, SUMS_VARIABLE
from strategos.components.evaluator.tfma import eval_config, result_files
from strategos.components.evaluator.tfma.eval_config import BASELINE, CANDIDATE
from strategos.components.schema_file import read_schema
from strategos.components.shards.kept import versions
from strategos.components.targets.label import Label

Artifacts = dict[str, list[types.Artifact]]

# Settings that scores do not depend on. Sums hold metrics and slices by name.
_JUDGED_BY = frozenset(
    {
        *("metrics", "slices", "bounds", "allow_constant"),
        *("confidence_level", "slice_intervals"),
    }
)


@dataclass(frozen=True)
class Evaluation:
    """One execution of the Evaluator.

    Attributes:
      inputs: The artifacts by name, see `component.EvaluatorSpec`.
      outputs: The artifacts to write.
      evaluator: The evaluator section: task, metrics, slices, bounds.
      label: The label, as `Label.text`.
      weight: Name of the feature that weights the rows; "" for none.
    """

    inputs: Artifacts
    outputs: Artifacts
    evaluator: Mapping[str, Any]
    label: str
    weight: str = ""

    @classmethod
    def of(
        cls, inputs: Artifacts, outputs: Artifacts, properties: Mapping[str, Any]
    ) -> Evaluation:
        """Reads the settings from the execution's properties."""
        return cls(inputs, outputs, **json.loads(properties[SETTINGS]))

    @property
    def metrics(self) -> list[str]:
        """The metrics to compute."""
        return metric_names(self.evaluator)

    @property
    def slices(self) -> list[str]:
        """The features to slice by."""
        features = (name for each in slicings(self.evaluator) for name in each.features)
        return list(dict.fromkeys(features))

    @property
    def query(self) -> str:
        """The feature with the query of each row; "" for none."""
        return self.evaluator.get("query") or ""

    @functools.cached_property
    def schema(self) -> schema_pb2.Schema:
        """The schema of the examples."""
        uri = artifact_utils.get_single_uri(self.inputs["schema"])
        return read_schema(io_utils.get_only_uri_in_dir(uri))

    @property
    def baseline(self) -> types.Artifact | None:
        """The model in production, if there is one."""
        for artifact in self.inputs.get("baseline_model") or []:
            if artifact.get_int_custom_property("none") != 1:
                return artifact
        return None

    def keep(self, scored: Scored) -> None:
        """Keeps the sums, so that other bounds can be judged without scoring.

        Args:
          scored: Results of all rows. Not kept if a model could not be scored: it may
            be possible the next time.
        """
        path = self._kept()
        if path and not scored.unusable:
            kept.write(path, scored, self.metrics)

    def kept(self) -> Scored | None:
        """The sums of an earlier evaluation of the same models on the same examples.

        None if there are none, or none of one of the metrics and slices.
        """
        path = self._kept()
        return kept.read(path, self.evaluator) if path else None

    def _kept(self) -> Path | None:
        """The file of the sums; its name stands for all that the scores depend on.

        None if the contents of the inputs are not recorded, as on a cluster.
        """
        folder = os.environ.get(SUMS_VARIABLE)
        artifacts = {name: each[0] for name, each in self.inputs.items() if each}
        contents = {
            name: each.get_string_custom_property("content")
            for name, each in artifacts.items()
        }
        if not (folder and all(contents.values())):
            return None
        settings = {
            key: value
            for key, value in self.evaluator.items()
            if key not in _JUDGED_BY and value is not None
        }
        read = self.label, self.weight
        stack = versions("tensorflow", "tf_keras", "keras", "numpy")
        parts = (contents, self.baseline is None, read, settings, stack)
        text = json.dumps(parts, sort_keys=True)
        return Path(folder, hashlib.sha256(text.encode()).hexdigest())

    def judge_again(self, kept: Scored) -> None:
        """Judges the sums of an earlier evaluation, and notes it.

        Args:
          kept: From `kept`.
        """
        events.emit(
            "note",
            message="Evaluator: model and examples are as in an earlier evaluation, so "
            "its sums are judged, and no row is scored again",
        )
        self.judge(kept)

    def judge(self, scored: Scored) -> None:
        """Judges, and writes the files of the evaluation and the blessing.

        Args:
          scored: Results of all rows.
        """
        incomparable = scored.unusable.get(BASELINE, "")
        baseline = None if incomparable else self.baseline
        models = [CANDIDATE] if baseline is None else [CANDIDATE, BASELINE]
        judgement = verdicts.of(
            scored, self.evaluator, self.label, models, incomparable
        )
        slices, checks, verdict = judgement.slices, judgement.checks, judgement.summary
        for warning in verdict["warnings"]:
            events.emit("warning", message=warning)

        (evaluation,), (blessing,) = (
            self.outputs["evaluation"],
            self.outputs["blessing"],
        )
        config = eval_config.effective(
            *(self.evaluator, self.label, self._is_made()),
            weight=self.weight,
            has_baseline=baseline is not None,
        )
        candidate = self.inputs["model"][0]
        judged = [candidate] if baseline is None else [candidate, baseline]
        paths = [path_utils.serving_model_dir(each.uri) for each in judged]
        names = [spec.name for spec in config.model_specs]
        result_files.write(
            evaluation.uri,
            config,
            slices,
            checks,
            blessed=verdict["blessed"],
            data=artifact_utils.get_single_uri(self.inputs["examples"]),
            models=dict(zip(names, paths, strict=True)),
        )
        plots = points.document(scored, self.evaluator["task"])
        _write(evaluation, ANSWERS, json.dumps(plots))
        _write_summary(evaluation, verdict)
        _bless(blessing, verdict["blessed"], candidate, baseline)
        logging.info("blessed: %s; %s", verdict["blessed"], verdict["reason"])

    def _is_made(self) -> bool:
        """Whether the model's own preprocessing makes the label or the weight."""
        texts = schema_pb2.BYTES
        numbers = {each.name for each in self.schema.feature if each.type != texts}
        read = {*Label.of(self.label).withheld, *filter(None, [self.weight])}
        tasks, labels = self.evaluator["task"], Label.of(self.label).by_output
        by_head = {"": tasks} if isinstance(tasks, str) else tasks
        is_vector = any(
            task == "multi_label" and not labels[head].is_several
            for head, task in by_head.items()
        )
        return is_vector or not read <= numbers or Label.of(self.label).reconstructs


def _write_summary(evaluation: types.Artifact, verdict: dict[str, Any]) -> None:
    _write(evaluation, summary.FILE, json.dumps(verdict, indent=1))
    for name, value in verdict["overall"].items():
        if value is not None:
            evaluation.set_float_custom_property(name, value)
    evaluation.set_int_custom_property("examples", verdict["examples"])
    evaluation.set_int_custom_property("blessed", int(verdict["blessed"]))
    evaluation.set_string_custom_property("reason", verdict["reason"])


def _write(evaluation: types.Artifact, name: str, text: str) -> None:
    io_utils.write_string_file(os.path.join(evaluation.uri, name), text)


def _bless(
    blessing: types.Artifact,
    blessed: bool,
    model: types.Artifact,
    baseline: types.Artifact | None,
) -> None:
    """Writes the file and the properties of the blessing of TFX's Evaluator."""
    for key, judged in zip(blessings.MODELS, (model, baseline), strict=True):
        if judged is not None:
            blessing.set_string_custom_property(key, judged.uri)
            blessing.set_int_custom_property(f"{key}_id", judged.id)
    path = os.path.join(blessing.uri, blessings.FILES[blessed])
    io_utils.write_string_file(path, "")
    blessing.set_int_custom_property(blessings.BLESSED, int(blessed))

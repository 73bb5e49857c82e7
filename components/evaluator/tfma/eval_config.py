"""Converts an evaluator section into TFMA's EvalConfig.

`sums` computes the metrics and `summary` the verdict. With this EvalConfig, TFMA would
compute the same; it is published with the results, so that TFMA's own tools can read
them. It has no `min_examples`: TFMA's `min_slice_size` hides a small slice's metrics
instead of exempting the slice from bounds. Nor has it the edges of bins, which TFMA
lacks: TFMA's own run would slice by each value of such a feature. Nor does TFMA know a
label of features to reconstruct.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.metrics import (
    METRICS,
    metric_names,
)
from strategos.components.evaluation.slices.slicing import Slicing, part_of, slicings
from strategos.components.evaluator.tfma.messages import config_pb2
from strategos.components.exported import OUTPUT, SERVE, TRANSFORM
from strategos.components.targets.label import Label

CANDIDATE, BASELINE = "candidate", "baseline"
"""Names of models, as `tfma.CANDIDATE_KEY` and `tfma.BASELINE_KEY`."""


def build(
    evaluator: Mapping[str, Any], label: str, is_made: bool = False, *, weight: str = ""
) -> config_pb2.EvalConfig:
    """Converts an evaluator section into a TFMA EvalConfig.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
      label: The label, as `Label.text`.
      is_made: Whether the model's own preprocessing makes the label or the weight, such
        as a class number of a string.
      weight: Name of the feature that weights the rows; "" for none.
    """
    config = config_pb2.EvalConfig()
    sections = naming.sections(evaluator)
    target = Label.of(label)
    columns = {head: own.text for head, own in target.heads.items()}
    for name in (CANDIDATE, BASELINE):
        config.model_specs.add(
            name=name,
            signature_name=SERVE,
            prediction_key="" if columns else OUTPUT,
            prediction_keys={head: head for head in columns},
            label_key="" if columns or target.reconstructs else label,
            label_keys=columns,
            example_weight_key=weight,
            is_baseline=name == BASELINE,
            preprocessing_function_names=[TRANSFORM] if is_made else [],
        )
    config.slicing_specs.add()
    part = part_of(evaluator["task"])
    by_part = [Slicing.of(part)] if part else []
    known = {each.name: each for each in [*slicings(evaluator), *by_part]}
    for slicing in known.values():
        config.slicing_specs.add(feature_keys=slicing.features)
    spec = config.metrics_specs.add()
    spec.metrics.add(class_name="ExampleCount")
    for head, section in sections.items() or [("", evaluator)]:
        bounds, names = section.get("bounds") or {}, metric_names(section)
        heads = [head] if head else []
        for query in dict.fromkeys(["", section.get("query") or ""]):
            some = [name for name in names if METRICS[name].by_query == bool(query)]
            if some and (head or query):
                spec = config.metrics_specs.add(output_names=heads, query_key=query)
            for name in some:
                _add_metric(spec, name, section["task"], bounds.get(name) or {}, known)
    config.options.include_default_metrics.value = False
    return config


def effective(
    evaluator: Mapping[str, Any],
    label: str,
    is_made: bool,
    *,
    weight: str = "",
    has_baseline: bool,
) -> config_pb2.EvalConfig:
    """The result of `build` as TFMA's `update_eval_config_with_defaults` changes it.

    Args:
      evaluator: The section: task, metrics, slices, bounds.
      label: The label, as `Label.text`.
      is_made: As for `build`.
      weight: As for `build`.
      has_baseline: Whether a model is compared with; else bounds on changes are left
        out.
    """
    config = build(evaluator, label, is_made, weight=weight)
    names = [CANDIDATE, BASELINE] if has_baseline else [""]
    if not has_baseline:
        del config.model_specs[1:]
        config.model_specs[0].name = ""
    for spec in config.metrics_specs:
        spec.model_names.extend(names)
        if weight:
            spec.example_weights.weighted = True
        for metric in () if has_baseline else spec.metrics:
            for each in metric.per_slice_thresholds:
                each.threshold.ClearField("change_threshold")
    return config


def _add_metric(
    spec: config_pb2.MetricsSpec,
    name: str,
    task: str,
    bound: Mapping[str, Any],
    known: Mapping[str, Slicing],
) -> None:
    metric = METRICS[name]
    tfma = metric.tfma if isinstance(metric.tfma, str) else metric.tfma[task]
    config = spec.metrics.add(
        class_name=tfma or type(metric).__name__,
        module="" if tfma else type(metric).__module__,
        config=json.dumps({"name": name, **metric.tfma_config}),
    )
    # Always by slicing spec: a `threshold` without one would apply to every slice.
    for sliced, limits in [(None, bound), *(bound.get("slices") or {}).items()]:
        features = known[sliced].features if sliced else []
        for threshold in _thresholds(limits):
            entry = config.per_slice_thresholds.add(threshold=threshold)
            entry.slicing_specs.add(feature_keys=features)


def _thresholds(limits: Mapping[str, Any]) -> list[config_pb2.MetricThreshold]:
    thresholds = []
    low, high = limits.get("at_least"), limits.get("at_most")
    if low is not None or high is not None:
        threshold = config_pb2.MetricThreshold()
        if low is not None:
            threshold.value_threshold.lower_bound.value = low
        if high is not None:
            threshold.value_threshold.upper_bound.value = high
        thresholds.append(threshold)
    for key, sign, direction in (
        ("may_drop", -1, config_pb2.HIGHER_IS_BETTER),
        ("may_rise", 1, config_pb2.LOWER_IS_BETTER),
    ):
        if limits.get(key) is not None:
            threshold = config_pb2.MetricThreshold()
            threshold.change_threshold.absolute.value = sign * limits[key]
            threshold.change_threshold.direction = direction
            thresholds.append(threshold)
    return thresholds

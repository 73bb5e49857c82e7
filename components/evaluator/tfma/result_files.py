"""Writes an evaluation in TFMA's file formats.

`tfma.load_eval_result`, `tfma.load_validation_result` and the TFMA viewer read these
files like TFMA's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf import json_format

from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.metrics import METRICS, bare
from strategos.components.evaluation.outcome.bounds import BoundCheck
from strategos.components.evaluation.slices.measured import SliceMetrics
from strategos.components.evaluation.slices.slicing import CROSS, text
from strategos.components.evaluator.tfma.messages import (
    VERSION,
    config_pb2,
    metrics_for_slice_pb2,
    validation_result_pb2,
)
from strategos.components.files import storage
from strategos.components.records import FILE_FORMAT, tfrecords


def write(
    folder: str,
    config: config_pb2.EvalConfig,
    slices: Sequence[SliceMetrics],
    checks: Sequence[BoundCheck],
    *,
    blessed: bool,
    data: str,
    models: Mapping[str, str],
) -> None:
    """Writes `eval_config.json`, the metrics and the validation result.

    Args:
      folder: Folder of the evaluation artifact.
      config: Result of `update_eval_config_with_defaults`; the metrics are stored under
        the names of its models.
      slices: The measured slices.
      checks: The bounds checked against the slices.
      blessed: The verdict.
      data: Location of the examples, for display.
      models: Folder of the SavedModel by model name, for display.
    """
    run = config_pb2.EvalRun(
        eval_config=config,
        version=VERSION,
        data_location=data,
        file_format=FILE_FORMAT,
        model_locations=models,
    )
    path = os.path.join(folder, "eval_config.json")
    storage.write(path, json_format.MessageToJson(run, sort_keys=True))
    _write_records(
        os.path.join(folder, "metrics-00000-of-00001.tfrecord"), _rows(slices, config)
    )
    verdict = _validation(config, slices, checks, blessed)
    _write_records(os.path.join(folder, "validations.tfrecord"), [verdict])


def _write_records(path: str, messages: Iterable[Any]) -> None:
    records = [each.SerializeToString() for each in messages]
    storage.write(path, bytes(tfrecords.frame(pa.array(records, pa.binary()))))


def _rows(
    slices: Sequence[SliceMetrics], config: config_pb2.EvalConfig
) -> Iterator[metrics_for_slice_pb2.MetricsForSlice]:
    """The metrics of each slice, as `tfma.writers.convert_slice_metrics_to_proto`.

    One message serves all slices, each until the next, as nearly all have the same
    metrics in the same order: TFMA's own function takes four times as long.
    """
    row, names = metrics_for_slice_pb2.MetricsForSlice(), _names(config)
    keys: list[tuple[str, str, bool]] = []
    features = _features(config)
    for piece in slices:
        metrics = _metrics(piece, *names)
        if keys != list(metrics):
            keys = list(metrics)
            del row.metric_keys_and_values[:]
            for name, model, is_diff in keys:
                key = _metric_key(name, model, config, is_diff=is_diff)
                row.metric_keys_and_values.add(key=key)
        row.slice_key.CopyFrom(_slice_key(piece, features))
        for entry, value in zip(
            row.metric_keys_and_values, metrics.values(), strict=True
        ):
            entry.value.double_value.value = value
        yield row


def _metric_key(
    name: str, model: str, config: config_pb2.EvalConfig, *, is_diff: bool = False
) -> metrics_for_slice_pb2.MetricKey:
    """As `tfma.metrics.MetricKey.to_proto`."""
    outputs = {each for spec in config.metrics_specs for each in spec.output_names}
    head, metric = naming.split(name)
    key = metrics_for_slice_pb2.MetricKey(
        name=metric if head in outputs else name,
        model_name=model,
        output_name=head if head in outputs else "",
        is_diff=is_diff,
    )
    key.example_weighted.value = any(x.example_weight_key for x in config.model_specs)
    return key


def _features(config: config_pb2.EvalConfig) -> dict[str, list[str]]:
    """The features that are sliced by, by name of the slicing."""
    keys = [list(spec.feature_keys) for spec in config.slicing_specs]
    return {CROSS.join(each): each for each in keys}


def _slice_key(
    piece: SliceMetrics, features: Mapping[str, Sequence[str]]
) -> metrics_for_slice_pb2.SliceKey:
    """As `tfma.slicer.serialize_slice_key`; the value of a bin is its text."""
    key = metrics_for_slice_pb2.SliceKey()
    if piece.feature is None:
        return key
    values = piece.value if isinstance(piece.value, tuple) else (piece.value,)
    columns = features[piece.feature]
    for column, value in sorted(zip(columns, values, strict=True), key=_column):
        single = key.single_slice_keys.add(column=column)
        if isinstance(value, float):
            single.float_value = value
        elif isinstance(value, int):
            single.int64_value = value
        else:
            single.bytes_value = text(value).encode()
    return key


def _column(pair: tuple[str, Any]) -> str:
    return pair[0]


def _metrics(
    piece: SliceMetrics, candidate: str, baseline: str | None
) -> dict[tuple[str, str, bool], float]:
    """Values by name of the metric, name of the model, and whether it is a change."""
    weighted = piece.examples if piece.weighted is None else piece.weighted
    count = {"example_count": float(weighted)}
    ours = {**count, **piece.metrics}
    result = {(name, candidate, False): value for name, value in ours.items()}
    if piece.baseline is not None and baseline:
        for name, value in {**count, **piece.baseline}.items():
            result[name, baseline, False] = value
        for name, value in ours.items():
            result[name, candidate, True] = value - result[name, baseline, False]
    return result


def _names(config: config_pb2.EvalConfig) -> tuple[str, str | None]:
    candidate = next(spec.name for spec in config.model_specs if not spec.is_baseline)
    baseline = [spec.name for spec in config.model_specs if spec.is_baseline]
    return candidate, baseline[0] if baseline else None


def _validation(
    config: config_pb2.EvalConfig,
    slices: Sequence[SliceMetrics],
    checks: Sequence[BoundCheck],
    blessed: bool,
) -> validation_result_pb2.ValidationResult:
    candidate, baseline = _names(config)
    features = _features(config)
    result = validation_result_pb2.ValidationResult(
        validation_ok=blessed, rubber_stamp=baseline is None
    )
    failures: dict[str, list[BoundCheck]] = {}
    for check in checks:
        if not check.ok:
            failures.setdefault(check.slice, []).append(check)
    for piece in slices:
        if failed := failures.get(piece.name):
            entry = result.metric_validations_per_slice.add()
            entry.slice_key.CopyFrom(_slice_key(piece, features))
            for check in failed:
                _add_failure(entry, check, piece, candidate, config)
    for check in checks:
        if check.feature and not check.examples and not check.ok:
            result.missing_slices.add(feature_keys=features[check.feature])
    return result


def _add_failure(
    entry: Any,
    check: BoundCheck,
    piece: SliceMetrics,
    model: str,
    config: config_pb2.EvalConfig,
) -> None:
    failure = entry.failures.add(message=check.note or "")
    value = failure.metric_threshold.value_threshold
    change = failure.metric_threshold.change_threshold
    received = piece.metrics[check.metric]
    bound, required = check.bound, check.required
    if bound == "better_than":  # TFMA has no such threshold
        higher = METRICS[bare(check.metric)].direction == "higher"
        bound = "at_least" if higher else "at_most"
    if required is None:  # undefined
        required = float("nan")
    if bound == "at_least":
        value.lower_bound.value = required
    elif bound == "at_most":
        value.upper_bound.value = required
    else:
        drop = bound == "may_drop"
        sign, name = (-1, "HIGHER_IS_BETTER") if drop else (1, "LOWER_IS_BETTER")
        change.absolute.value = sign * required
        change.direction = config_pb2.MetricDirection.Value(name)
        received = float("nan") if check.received is None else sign * check.received
    is_diff = bound in ("may_drop", "may_rise")
    failure.metric_key.CopyFrom(
        _metric_key(check.metric, model, config, is_diff=is_diff)
    )
    failure.metric_value.double_value.value = received

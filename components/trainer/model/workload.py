"""Reads the inputs of a `WorkerSpec`: examples, and the context of `build_model`."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from strategos.components.errors import UserError
from strategos.components.records import counts
from strategos.components.schema_file import read_schema
from strategos.components.targets.label import Label
from strategos.components.trainer import phases
from strategos.components.trainer.data import dataset, file_shards, parsing
from strategos.components.trainer.data.batches import length_buckets
from strategos.components.trainer.data.batches.weights import Weights
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.model.context import (
    Hyperparameters,
    TrainingContext,
)
from strategos.components.trainer.model.labels import class_weights, weight_checks
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed import sparse_columns
from strategos.components.wording import choices, did_you_mean

_LISTED = (
    "Let `preprocessing_fn` make a dense tensor of numbers of it, or list other "
    "features: `label: {reconstruct: [FEATURE, …]}`."
)
_MISSING = {
    "label": "Leave these rows out: `data.unlabelled: drop`. If `preprocessing_fn` "
    "makes the label of another column, or of a list of classes, let it return a "
    "dense one: 0 or 1 for each class.",
    "weight": "Give such rows a weight: `data.missing`, or in `preprocessing_fn`; a "
    "row that does not count weighs 0.",
}


def training_split(
    spec: WorkerSpec, cluster: ClusterSpec, agreement: Agreement
) -> Split | file_shards.FileShare:
    """Reads the training examples; with `shard: files` only this worker's files.

    Args:
      spec: The model, data and settings of the training.
      cluster: All tasks, and the task of this process.
      agreement: Sums values over the workers.

    Raises:
      UserError: No examples, fewer files than workers, a missing label, or another
        number of rows than was written.
    """
    is_chief = cluster.is_chief
    length_buckets.check(spec.settings.bucket_by, _features(spec))
    if spec.distribution.get("shard") != "files" or agreement.alone:
        read = split(spec, spec.train_files, spec.train_rows, agreement)
        read = _bucketed(read, spec.settings.bucket_by)
        return with_class_weights(spec, read, is_chief)
    shares = file_shards.read(
        spec.train_files,
        _features(spec),
        spec.label,
        spec.settings.cache_limit,
        pipeline=cluster.tasks.index(cluster.task),
        pipelines=agreement.workers,
        total=agreement.total,
        weights=_weights(spec),
    )
    _check_weights(spec, shares.split, "training")
    counts.check(os.path.dirname(spec.train_files[0]), shares.total, spec.train_rows)
    own = _bucketed(shares.split, spec.settings.bucket_by)
    return dataclasses.replace(shares, split=with_class_weights(spec, own, is_chief))


def with_class_weights(spec: WorkerSpec, read: Split, announces: bool = False) -> Split:
    """Training examples weighted by their classes, if `trainer.class_weight` is set.

    Args:
      spec: The model, data and settings of the training.
      read: Training examples, perhaps of some of the files.
      announces: Whether to log the factors.

    Raises:
      UserError: See `class_weights.factors`.
    """
    setting = spec.settings.class_weight
    if not setting:
        return read
    if spec.target.is_several or spec.target.outputs or spec.target.reconstructs:
        raise class_weights.several_classes(spec.target.name)
    is_whole = set(read.files) == set(spec.train_files)
    files = spec.train_files, read.spec, spec.label
    labels = read.values(spec.label) if is_whole else parsing.column(*files)
    factors = class_weights.factors(
        setting, labels, spec.label, spec.transform_graph, announces=announces
    )
    weights = dataclasses.replace(read.weights, factors=factors)
    return dataclasses.replace(read, weights=weights)


def _weights(spec: WorkerSpec) -> Weights:
    return Weights(spec.weight)


def _check_weights(spec: WorkerSpec, read: Split, name: str) -> None:
    if spec.weight:
        weight_checks.check(read.values(spec.weight).numpy(), spec.weight, name)


def _bucketed(read: Split, feature: str | None) -> Split:
    if not feature:
        return read
    length_buckets.check_memory(read.columns)
    return dataclasses.replace(read, bucketed_by=feature)


def split(
    spec: WorkerSpec,
    files: tuple[str, ...],
    rows: int = 0,
    agreement: Agreement | None = None,
) -> Split:
    """Reads the examples in `files`.

    Args:
      spec: The model, data and settings of the training.
      files: TFRecord files.
      rows: Number of rows that were written to the files; 0 (default) if unknown.
      agreement: Sums values over the workers that shuffle the rows together, if any.

    Raises:
      UserError: No examples, a missing label, or another number of rows than `rows`.
    """
    anywhere = bool if agreement is None else agreement.any
    limit = spec.settings.cache_limit
    where = files, _features(spec), spec.label, limit, anywhere
    data = dataset.read(*where, weights=_weights(spec))
    is_training = set(files) == set(spec.train_files)
    _check_weights(spec, data, "training" if is_training else spec.eval_split)
    counts.check(os.path.dirname(files[0]), data.rows, rows)
    return data


def context(
    spec: WorkerSpec, rows: int, replicas: int, *, is_chief: bool = True
) -> TrainingContext:
    """The argument of `build_model(context)`, for the last phase of the training.

    Args:
      spec: The model, data and settings of the training.
      rows: Number of training examples.
      replicas: Copies of the model that train together.
      is_chief: Whether this process's model is published.
    """
    transform_output = tft.TFTransformOutput(spec.transform_graph)
    feature_spec = transform_output.transformed_feature_spec()
    phase = phases.of(spec)[-1]
    feature_spec.pop(spec.weight, None)
    return TrainingContext(
        hyperparameters=Hyperparameters(spec.hyperparameters),
        label=spec.label,
        weight=spec.weight,
        label_spec=_label_spec(feature_spec, spec.target),
        feature_spec=feature_spec,
        schema=read_schema(spec.schema_file),
        transform_output=transform_output,
        rows=rows,
        epochs=phase.epochs,
        phase=phase.name,
        replicas=replicas,
        global_batch_size=spec.batch_size,
        seed=spec.seed,
        drops_last_batch=spec.settings.last_batch == "drop",
        is_chief=is_chief,
    )


def _features(spec: WorkerSpec) -> dict[str, Any]:
    feature_spec = tft.TFTransformOutput(
        spec.transform_graph
    ).transformed_feature_spec()
    for name in spec.target.columns:
        _check_target(spec, "label", name, feature_spec)
        if spec.target.reconstructs and feature_spec[name].dtype == tf.string:
            raise UserError(
                f"feature `{name}` is a string after Transform, and `label` names it "
                "to reconstruct",
                key="label",
                remedy=_LISTED,
            )
    for label in (spec.target, *spec.target.heads.values()):
        if label.is_several:
            _check_numbers(label, feature_spec)
    if spec.weight:
        _check_target(spec, "weight", spec.weight, feature_spec)
    return feature_spec


def _check_numbers(label: Label, feature_spec: Mapping[str, Any]) -> None:
    """Rejects a column of several that is not one number of each row."""
    for name in label.columns:
        kind = feature_spec[name]
        width = math.prod(kind.shape)
        if width != 1 or kind.dtype == tf.string:
            raise UserError(
                f"`{name}` is a string after Transform"
                if kind.dtype == tf.string
                else f"`{name}` has {width} values a row after Transform",
                key="label",
                expected="one number, 0 or 1, of each column",
                remedy="Make it in `preprocessing_fn`.",
            )


def _label_spec(feature_spec: dict[str, Any], label: Label) -> Any:
    """Takes the `tf.io` spec of the label out of those of all features.

    Of several heads a spec by output.
    """
    if label.outputs:
        return label.by_head(feature_spec, _label_spec)
    if label.reconstructs:
        shapes = [feature_spec[name].shape for name in label.columns]
        values = [sum(map(math.prod, shapes))]
        shape = shapes[0] if len(shapes) == 1 and shapes[0] else values
        return tf.io.FixedLenFeature(shape, tf.float32)
    kinds = [feature_spec.pop(name) for name in label.columns]
    if len(kinds) == 1:
        return kinds[0]
    dtypes = {kind.dtype for kind in kinds}
    dtype = dtypes.pop() if len(dtypes) == 1 else tf.float32
    return tf.io.FixedLenFeature([len(kinds)], dtype)


def _check_target(
    spec: WorkerSpec, key: str, name: str, feature_spec: dict[str, Any]
) -> None:
    """Rejects a label, weight or feature to reconstruct that is absent or not dense."""
    if name not in feature_spec:
        raise UserError(
            "`preprocessing_fn` returns no such feature",
            key=key,
            received=f"`{name}`",
            expected=choices(sorted(feature_spec)),
            remedy=did_you_mean(
                name, feature_spec, f"Return it there, or correct `{key}`."
            ),
        )
    kind = feature_spec[name]
    if not isinstance(kind, tf.io.FixedLenFeature) and spec.target.reconstructs:
        raise UserError(
            f"feature `{name}` has no value, or several, in some rows"
            f"{_seen_missing(spec, name)}, and `label` names it to reconstruct",
            key=key,
            remedy=f"{_LISTED} A missing value: `data.missing`.",
        )
    if not isinstance(kind, tf.io.FixedLenFeature):
        raise UserError(
            f"`{name}` is missing in some rows{_seen_missing(spec, name)}",
            key=key,
            remedy=_MISSING[key],
        )
    if key == "weight" and kind.dtype == tf.string:
        raise UserError(
            f"`{name}` is a string after Transform",
            key=key,
            remedy="Make a number of it in `preprocessing_fn`.",
        )


def _seen_missing(spec: WorkerSpec, name: str) -> str:
    """Number of rows without a value and the first place; "" if unknown."""
    missing_rows = sparse_columns.load(spec.transform_graph).get(name)
    return f": {missing_rows}" if missing_rows else ""

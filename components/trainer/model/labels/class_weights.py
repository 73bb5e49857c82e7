"""Factors of classes in training: `trainer.class_weight`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.data.batches.weights import class_of
from strategos.components.transformed.graph import TransformGraph
from strategos.components.wording import choices

_KEY = "trainer.class_weight"
_MOST_CLASSES = 1000


def factors(
    setting: Mapping[str, float] | Literal["balanced"],
    labels: tf.Tensor,
    label: str,
    transform_graph: str,
    *,
    announces: bool,
) -> dict[float, float]:
    """The factor of each class, by its number after Transform.

    Args:
      setting: A factor by value of the label in the data; or `balanced`, for the number
        of rows divided by the number of classes and by the rows of the class.
      labels: The labels of all training rows, `[rows, k]`.
      label: Name of the label.
      transform_graph: Folder of Transform's output graph.
      announces: Whether to log the factors.

    Raises:
      UserError: A class does not occur in the training split, a value has no class,
        two spellings of a class have two factors, a row has several classes, or the
        label has too many values to be classes.
    """
    if labels.shape[-1] > 1 and not _is_one_hot(labels.numpy()):
        raise several_classes(label)
    values, rows = np.unique(class_of(labels).numpy(), return_counts=True)
    if len(values) > _MOST_CLASSES:
        raise UserError(
            f"`{label}` has {len(values):,} values in the training split",
            key=_KEY,
            expected=f"at most {_MOST_CLASSES:,} classes",
            remedy="Weigh the rows by a feature: `weight`.",
        )
    counts = dict(zip(map(float, values), map(int, rows), strict=True))
    if setting == "balanced":
        total = sum(counts.values())
        by_class = {c: total / (len(counts) * count) for c, count in counts.items()}
    else:
        classes = _classes(list(setting), label, transform_graph)
        by_class = {}
        for number, (value, factor) in zip(classes, setting.items(), strict=True):
            known = _known(number, value, factor, counts, label)
            if by_class.setdefault(number, known) != known:
                raise UserError(
                    f"`{value}` is another spelling of a class of `{label}` that has "
                    f"the factor {by_class[number]:g}",
                    key=_KEY,
                    received=f"{factor:g}",
                    remedy="Give one factor for each class.",
                )
    if announces:
        text = ", ".join(f"{c:g}: {factor:.6g}" for c, factor in by_class.items())
        message = f"classes of `{label}` are weighted: {text}"
        logging.info(message)
        events.emit("note", message=message)
    return by_class


def several_classes(label: str) -> UserError:
    """The error of factors for a label that may be several classes of a row.

    Args:
      label: Name of the label.
    """
    return UserError(
        f"a row has several classes of `{label}`, or none, so no factor is its weight",
        key=_KEY,
        remedy="Weigh the rows by a feature, `weight`, or the classes in the model's "
        "loss; remove the setting.",
    )


def _is_one_hot(labels: np.ndarray) -> bool:
    rows = labels.reshape(len(labels), -1)
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all())


def _known(
    number: float, value: str, factor: float, counts: Mapping[float, int], label: str
) -> float:
    if number not in counts:
        raise UserError(
            f"no row of the training split has the class `{value}` of `{label}`",
            key=_KEY,
            expected=f"classes {choices([f'{each:g}' for each in sorted(counts)])}"
            " (numbers after `preprocessing_fn`)",
        )
    return factor


def _classes(values: Sequence[str], label: str, folder: str) -> list[float]:
    """The class of each value of the raw label; the values, if it is not raw."""
    graph = TransformGraph(tft.TFTransformOutput(folder))
    if graph.raw_features_of([label]) != {label}:
        return [_number(value, float, label) for value in values]
    spec = graph.raw_spec[label]
    raw = tf.io.parse_example(
        [_example(label, value, spec.dtype) for value in values], {label: spec}
    )
    made = graph.transform(raw, [label])[label]
    if not isinstance(made, tf.Tensor):
        made = made.values[:, tf.newaxis]
    return [float(each) for each in class_of(made).numpy()]


def _example(label: str, value: str, dtype: tf.DType) -> bytes:
    example: Any = tf.train.Example()
    feature = example.features.feature[label]
    if dtype == tf.string:
        feature.bytes_list.value.append(value.encode())
    elif dtype.is_integer:
        feature.int64_list.value.append(_number(value, int, label))
    else:
        feature.float_list.value.append(_number(value, float, label))
    return example.SerializeToString()


def _number(value: str, kind: Any, label: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise UserError(
            f"`{value}` is no value of `{label}`, which has numbers", key=_KEY
        ) from None

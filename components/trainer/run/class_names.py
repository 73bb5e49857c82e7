"""The names of the classes that a model predicts, if Transform has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.labels import reconstruction
from strategos.components.transformed.graph import TransformGraph


def class_names(
    graph: TransformGraph, context: TrainingContext, head: str = ""
) -> list[str]:
    """The label's values for class 0, 1, 2, …, or its columns; empty if unknown.

    Of features to reconstruct the names of their values: `shop[0]`, `shop[1]`, …

    The names are verified: Transform's graph is applied to each list of values that may
    be the right one (Transform's vocabularies and the label's domain in the schema),
    and must map each value to a different class: a number, or a place in a vector.

    Args:
      graph: Transform's graph.
      context: The facts of the training.
      head: The output of a model with several heads; "" for one head.
    """
    target = context.target.heads[head] if head else context.target
    label = target.text
    if target.is_several:
        return [*target.columns]
    if context.target.reconstructs:
        return reconstruction.names(context)
    kind = context.label_spec[head] if head else context.label_spec
    if label not in graph.outputs or graph.raw_features_of([label]) != {label}:
        return []
    spec = graph.raw_spec[label]
    is_vector = math.prod(kind.shape) > 1  # with a place for each class
    if spec.dtype != tf.string or not (kind.dtype == tf.int64 or is_vector):
        return []
    for values in _candidates(context, label):
        classes = _transformed(values, graph, label)
        if sorted(classes) == list(range(len(values))):
            return [values[place] for place in np.argsort(classes)]
    return []


def _candidates(context: TrainingContext, label: str) -> Iterator[list[str]]:
    domains = {domain.name: domain for domain in context.schema.string_domain}
    for feature in context.schema.feature:
        if feature.name == label:
            domain = _domain(feature, domains)
            if domain is not None:
                yield list(domain.value)
    for name in context.vocabularies():
        yield context.vocabulary(name)


def _domain(
    feature: schema_pb2.Feature, domains: dict[str, schema_pb2.StringDomain]
) -> schema_pb2.StringDomain | None:
    if feature.HasField("string_domain"):
        return feature.string_domain
    return domains.get(feature.domain)


def _transformed(values: Sequence[str], graph: TransformGraph, label: str) -> list[int]:
    """The class of each value; empty if a value does not give exactly one class."""
    rows = []
    for value in values:
        example = tf.train.Example()
        example.features.feature[label].bytes_list.value.append(value.encode())
        rows.append(example.SerializeToString())
    if not rows:
        return []
    raw = tf.io.parse_example(rows, {label: graph.raw_spec[label]})
    labels = graph.transform(raw, [label])[label]
    if isinstance(labels, tf.SparseTensor):
        labels = labels.values
    classes = np.asarray(labels)
    if classes.ndim == 2 and classes.shape[1] > 1:
        if not ((classes == 0) | (classes == 1)).all() or (classes.sum(1) != 1).any():
            return []
        classes = classes.argmax(1)
    classes = classes.reshape(-1)
    return classes.tolist() if len(classes) == len(values) else []

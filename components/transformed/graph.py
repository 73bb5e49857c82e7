"""Transform's graph: applies it, and finds the raw features of a transformed one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from strategos.components.transformed import feature_ids
from strategos.components.transformed.feature_ids import FeatureIds


class TransformGraph:
    """The graph that Transform wrote, loaded once.

    Args:
      output: TFT's view of the graph's folder.

    Attributes:
      layer: TFT's layer; a SavedModel that uses the graph must track it.
      raw_spec: `tf.io` spec of each raw feature.
      outputs: Names of the transformed features, including the label.
    """

    def __init__(self, output: tft.TFTransformOutput):
        with _full_precision():  # or mixed precision casts raw floats for the layer
            self.layer = output.transform_features_layer()
        self.raw_spec: dict[str, Any] = output.raw_feature_spec()
        self.outputs = sorted(output.transformed_feature_spec())
        self._loaded = tf.saved_model.load(output.transform_savedmodel_dir)
        self._sources = _sources(self._loaded.transform_fn)

    def raw_features_of(self, names: Iterable[str]) -> set[str]:
        """The raw features that transformed features are computed from.

        Args:
          names: Transformed features.
        """
        return {raw for name in names for raw in self._sources[name]}

    def ids(self) -> dict[str, FeatureIds]:
        """The meaning of each transformed feature's values, the label included."""
        return _ids(self._loaded.transform_fn)

    def raw_columns_of(self, features: Iterable[str]) -> set[str]:
        """The columns of a tf.Example that raw features are parsed from.

        Args:
          features: Raw features.
        """
        return {column for name in features for column in self._columns(name)}

    def _columns(self, name: str) -> list[str]:
        spec = self.raw_spec[name]
        if isinstance(spec, tf.io.SparseFeature):
            return [spec.value_key, *tf.nest.flatten(spec.index_key)]
        if isinstance(spec, tf.io.RaggedFeature):
            keys = [getattr(partition, "key", None) for partition in spec.partitions]
            return [spec.value_key or name, *filter(None, keys)]
        return [name]

    def transform(self, raw: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Transforms raw features.

        Args:
          raw: Tensors by raw feature, as `tf.io.parse_example` returns them.
          names: Transformed features to return.

        Returns:
          Tensors of rank 2 or more, by name.
        """
        transformed = self.layer(dict(raw))
        return {name: _at_least_rank_2(transformed[name]) for name in names}


def ids_of(output: tft.TFTransformOutput) -> dict[str, FeatureIds]:
    """The meaning of each transformed feature's values, the label included.
    Args:
      output: TFT's view of the graph's folder.
    """
    loaded = tf.saved_model.load(output.transform_savedmodel_dir)
    return _ids(loaded.transform_fn)


def raw_schema_file(folder: str) -> str:
    """The schema of the raw examples as the graph parses them.

    It differs from the schema of the run in the columns of `data.missing`.

    Args:
      folder: Folder of the transform graph.
    """
    return f"{folder}/{tft.TFTransformOutput.RAW_METADATA_DIR}/schema.pbtxt"


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Layers made in the block do not cast inputs by a policy of mixed precision."""
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("float32")
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)


def _at_least_rank_2(value: Any) -> Any:
    if isinstance(value, tf.Tensor) and value.shape.rank == 1:
        return value[:, tf.newaxis]
    return value


def _sources(transform_fn: Any) -> dict[str, set[str]]:
    """The raw features that each transformed feature depends on."""
    function = getattr(transform_fn, "concrete_functions", [transform_fn])[0]
    graph, raw_of = function.graph, _raw_features(function)
    sources: dict[str, set[str]] = {}
    names = _flat_names(graph.structured_outputs)
    for name, tensor in zip(names, graph.outputs, strict=True):
        above = {op.name for op in ancestors(tensor.op)}
        raw_names = {raw_of[op] for op in above & raw_of.keys()}
        sources[name] = sources.get(name, set()) | raw_names
    return sources


def _ids(transform_fn: Any) -> dict[str, FeatureIds]:
    """The meaning of each transformed feature's values."""
    function = getattr(transform_fn, "concrete_functions", [transform_fn])[0]
    graph = function.graph
    digests = feature_ids.Digests(graph, _raw_features(function))
    prune = _pruning(graph)
    structured = graph.structured_outputs
    names = _flat_names(structured)
    ids_of = {}
    for name in structured:
        parts = [
            feature_ids.without_copies(tensor)
            for other, tensor in zip(names, graph.outputs, strict=True)
            if other == name
        ]
        kind = structured[name]
        is_sparse = isinstance(kind, (tf.SparseTensor, tf.SparseTensorSpec))
        values = parts[1] if is_sparse else parts[0]
        ids_of[name] = feature_ids.of(parts, values, digests, prune)
    return ids_of


def _pruning(graph: Any) -> feature_ids.Prune:
    """A function that cuts parts out of a graph."""
    from tensorflow.python.eager import wrap_function
    from tensorflow.python.ops.op_selector import UnliftableError

    holder = wrap_function.VariableHolder()
    whole = wrap_function.WrappedFunction(graph, variable_holder=holder)

    def prune(fed: Sequence[tf.Tensor], fetched: Sequence[tf.Tensor]) -> Any:
        try:
            return whole.prune(list(fed), list(fetched))
        except (UnliftableError, KeyError) as error:
            # A KeyError: another output of the operation that makes a fed tensor.
            raise ValueError(str(error)) from error

    return prune


def _raw_features(function: Any) -> dict[str, str]:
    """The raw feature of each placeholder of a transform function, by its name."""
    specs = function.structured_input_signature[0][0]
    placeholders = (x.op.name for x in function.graph.inputs)  # then the captured
    return dict(zip(placeholders, _flat_names(specs), strict=False))


def _flat_names(structure: Mapping[str, Any]) -> list[str]:
    """The key of each tensor, in the order in which a graph flattens a dict."""
    return [
        name
        for name in sorted(structure)
        for _ in tf.nest.flatten(structure[name], expand_composites=True)
    ]


def ancestors(op: tf.Operation) -> set[tf.Operation]:
    """An operation, and all operations that it is computed from."""
    seen, todo = {op}, [op]
    while todo:
        new = {tensor.op for tensor in todo.pop().inputs} - seen
        seen |= new
        todo.extend(new)
    return seen

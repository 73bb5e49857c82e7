"""Transform's graph: applies it, and finds the raw features of a transformed one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import tf2_utils

from strategos.components.transformed import feature_ids
from strategos.components.transformed.feature_ids import FeatureIds


class TransformGraph:
    """The graph that Transform wrote, loaded once.

    Args:
      output: TFT's view of the graph's folder.

    Attributes:
      loaded: The tables of the graph; a SavedModel that uses them must track it.
      raw_spec: `tf.io` spec of each raw feature.
      outputs: Names of the transformed features, including the label.
    """

    def __init__(self, output: tft.TFTransformOutput):
        self.raw_spec: dict[str, Any] = output.raw_feature_spec()
        self.outputs = sorted(output.transformed_feature_spec())
        self.loaded = tf.saved_model.load(output.transform_savedmodel_dir)
        self._function = _function(self.loaded)
        self._sources = _sources(self._function)
        self._parts: dict[frozenset[str], tuple[dict[str, Any], list[Any], Any]] = {}

    def raw_features_of(self, names: Iterable[str]) -> set[str]:
        """The raw features that transformed features are computed from.

        Args:
          names: Transformed features.
        """
        return {raw for name in names for raw in self._sources[name]}

    def ids(self) -> dict[str, FeatureIds]:
        """The meaning of each transformed feature's values, the label included."""
        return _ids(self._function)

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
        transformed = self.apply(raw, names)
        return {name: _at_least_rank_2(value) for name, value in transformed.items()}

    def apply(self, raw: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """As `transform`, but returns tensors of the rank that the graph gives them.

        Only the part of the graph that computes `names` runs, so that a graph of all
        columns costs a model of some columns nothing.

        Args:
          raw: Tensors by raw feature.
          names: Transformed features to return.
        """
        wanted = frozenset(names)
        if lacking := self.raw_features_of(wanted) - raw.keys():
            raise KeyError(*sorted(lacking))
        if wanted not in self._parts:
            self._parts[wanted] = _part(self._function, wanted)
        placeholders, outputs, part = self._parts[wanted]
        missing = placeholders.keys() - raw.keys()
        inputs = {**raw, **_stand_ins(placeholders, missing, raw)}
        fed = [inputs[name] for name in placeholders]
        transformed = part(*tf.nest.flatten(fed, expand_composites=True))
        flat = tf.nest.flatten(transformed, expand_composites=True)
        for tensor, original in zip(flat, outputs, strict=True):
            tensor.set_shape(original.shape)  # which a part of a graph forgets
        return transformed


def ids_of(output: tft.TFTransformOutput) -> dict[str, FeatureIds]:
    """The meaning of each transformed feature's values, the label included.
    Args:
      output: TFT's view of the graph's folder.
    """
    loaded = tf.saved_model.load(output.transform_savedmodel_dir)
    return _ids(_function(loaded))


def raw_schema_file(folder: str) -> str:
    """The schema of the raw examples as the graph parses them.

    It differs from the schema of the run in the columns of `data.missing`.

    Args:
      folder: Folder of the transform graph.
    """
    return f"{folder}/{tft.TFTransformOutput.RAW_METADATA_DIR}/schema.pbtxt"


def _at_least_rank_2(value: Any) -> Any:
    if isinstance(value, tf.Tensor) and value.shape.rank == 1:
        return value[:, tf.newaxis]
    return value


def _function(loaded: Any) -> Any:
    """The concrete function of a loaded graph."""
    function = loaded.transform_fn
    return getattr(function, "concrete_functions", [function])[0]


def _part(
    function: Any, names: frozenset[str]
) -> tuple[dict[str, Any], list[tf.Tensor], Any]:
    """The part of a transform function that computes some features.

    A function waits for all its operations with side effects, such as look-ups and
    assertions: the part has these, too, with their raw features.

    Returns:
      The placeholders that the part is fed, by raw feature; the tensors of its results
      in the whole graph; and the part.
    """
    graph, specs = function.graph, function.structured_input_signature[0][0]
    count = len(tf.nest.flatten(specs, expand_composites=True))  # then the captured
    placeholders, outputs = (
        tf.nest.pack_sequence_as(structure, tensors, expand_composites=True)
        for structure, tensors in (
            (specs, graph.inputs[:count]),
            (graph.structured_outputs, graph.outputs),
        )
    )
    fetched = {name: outputs[name] for name in sorted(names)}
    tensors = tf.nest.flatten(fetched, expand_composites=True)
    above = ancestors(*(tensor.op for tensor in tensors), waiting=True)
    fed = {
        name: value
        for name, value in placeholders.items()
        if any(x.op in above for x in tf.nest.flatten(value, expand_composites=True))
    }
    return fed, tensors, _whole(graph).prune(list(fed.values()), fetched)


def _stand_ins(
    placeholders: Mapping[str, Any], missing: set[str], raw: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Values for raw features that no wanted feature is computed from."""
    if not missing:
        return {}
    tensor = next(iter(raw.values()), None)
    rows = 1 if tensor is None else tf.shape(tensor)[0]
    return tf2_utils.supply_missing_inputs(placeholders, rows, missing)


def _sources(function: Any) -> dict[str, set[str]]:
    """The raw features that each transformed feature depends on."""
    graph, raw_of = function.graph, _raw_features(function)
    sources: dict[str, set[str]] = {}
    names = _flat_names(graph.structured_outputs)
    for name, tensor in zip(names, graph.outputs, strict=True):
        above = {op.name for op in ancestors(tensor.op)}
        raw_names = {raw_of[op] for op in above & raw_of.keys()}
        sources[name] = sources.get(name, set()) | raw_names
    return sources


def _ids(function: Any) -> dict[str, FeatureIds]:
    """The meaning of each transformed feature's values."""
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
    from tensorflow.python.ops.op_selector import UnliftableError

    whole = _whole(graph)

    def prune(fed: Sequence[tf.Tensor], fetched: Sequence[tf.Tensor]) -> Any:
        try:
            return whole.prune(list(fed), list(fetched))
        except (UnliftableError, KeyError) as error:
            # A KeyError: another output of the operation that makes a fed tensor.
            raise ValueError(str(error)) from error

    return prune


def _whole(graph: Any) -> Any:
    from tensorflow.python.eager import wrap_function

    holder = wrap_function.VariableHolder(share_variables=True)
    return wrap_function.WrappedFunction(graph, variable_holder=holder)


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


def ancestors(*ops: tf.Operation, waiting: bool = False) -> set[tf.Operation]:
    """Operations, and all operations that they are computed from.

    Args:
      ops: The operations.
      waiting: Whether to include the operations that these wait for.
    """
    seen, todo = set(ops), list(ops)
    while todo:
        op = todo.pop()
        above = {tensor.op for tensor in op.inputs}
        new = (above | set(op.control_inputs) if waiting else above) - seen
        seen |= new
        todo.extend(new)
    return seen

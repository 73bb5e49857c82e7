"""Every private API of TFT, and TensorFlow, that the analysis here uses; nothing else.

TFT describes an analysis as a graph of operations: a node of the graph is an
`OperationDef` with its inputs. Beam only enters where TFT's visitor makes a pipeline of
the graph; the visitor of `operations` computes the values instead.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.python.eager import wrap_function
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import lookup_ops
from tensorflow.python.trackable import resource
from tensorflow_transform import (
    analyzer_nodes,
    analyzers,
    annotators,
    graph_context,
    graph_tools,
    impl_helper,
    nodes,
    schema_inference,
    tf2_utils,
    tf_utils,
)
from tensorflow_transform.beam import (
    analysis_graph_builder,
    analyzer_impls,
    beam_nodes,
)
from tensorflow_transform.saved import saved_transform_io_v2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io

from strategos.components.errors import UserError

Tensors = Mapping[str, Any]
PreprocessingFn = Callable[[Tensors], Tensors]

ordering = analyzers._VocabOrderingType
empty_vocabulary = analyzers.get_empy_vocabulary_dummy_value
minimal_difference = analyzers.calculate_recommended_min_diff_from_avg
SENTINELS = (
    tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING,
    tf_utils.GLOBAL_Y_COUNT_SENTINEL_INT,
)

by_key = analyzer_impls._split_inputs_by_key
keys_and_outputs = analyzer_impls._merge_outputs_by_key
boundaries_of_keys = analyzer_impls._join_boundary_rows
line = analyzer_impls._count_and_token_to_bytes
means_of_tokens = analyzer_impls._flatten_to_key_and_means_accumulator_list
labels_of_tokens = analyzer_impls._flatten_value_and_labeled_weights_to_list_of_tuples
sum_labels = analyzer_impls.sum_labeled_weights
WeightedMean = analyzer_impls._WeightedMeanCombineFn
Merging = analyzer_impls._CombinerWrapper
information = analyzer_impls._calculate_mutual_information_for_feature_value
reserved_tokens = tf_utils.fetch_vocabulary_reserved_tokens

__all__ = ["Traced", "analyzer_nodes", "beam_nodes", "build", "nodes"]


class Traced:
    """The user's function as a graph, with the results of analyzers so far.

    Args:
      function: `preprocessing_fn`.
      specs: Types of its inputs.
      temporary: Folder for files in place of vocabularies that are not known yet.
      results: Results of analyzers by the name of their tensor; None for the first
        graph.

    Attributes:
      graph: The graph.
      inputs: Its inputs by name.
      outputs: Its outputs by name.
    """

    def __init__(
        self,
        function: PreprocessingFn,
        specs: Mapping[str, tf.TypeSpec],
        temporary: str,
        results: dict[str, tf.Tensor] | None = None,
    ):
        self._function, self._temporary, self._results = function, temporary, results
        self._module = tf.Module()
        self._returned: Tensors = {}
        self._concrete = self._trace(specs)
        self.graph = self._concrete.graph
        self.inputs = tf2_utils.get_structured_inputs_from_func_graph(self.graph)
        self.outputs = self._concrete.structured_outputs

    def _trace(self, specs: Mapping[str, tf.TypeSpec]) -> Any:
        """Traces the function; the module then holds the resources of the graph.

        As `saved_transform_io_v2.trace_and_update_module`, which also prunes each graph
        to its outputs.
        """

        def function(inputs: Tensors) -> Tensors:
            self._returned = self._function(inputs)
            return self._returned

        def created(make: Callable[..., Any], **kwargs: Any) -> Any:
            variables.append(make(**kwargs))
            return variables[-1]

        resources, objects = resource.ResourceTracker(), annotators.ObjectTracker()
        variables: list[Any] = []
        module, context = self._module, graph_context.TFGraphContext(
            module_to_export=self._module,
            temp_dir=self._temporary,
            evaluated_replacements=self._results,
        )  # fmt: skip
        with (
            resource.resource_tracker_scope(resources),
            annotators.object_tracker_scope(objects),
            tf.variable_creator_scope(created),
        ):
            concrete = impl_helper.get_traced_transform_fn(
                function, specs, context
            ).get_concrete_function()
        module.created_variables = variables
        module.resources = resources.resources
        module.trackable_objects = objects.trackable_objects
        module.initializers = [
            each._initializer
            for each in resources.resources
            if isinstance(each, lookup_ops.InitializableLookupTableBase)
        ]
        return concrete

    def fingerprint(self) -> dict[str, set[str]]:
        """The inputs that each analyzer depends on; equal in each trace.

        As `graph_tools.get_analyzers_fingerprint`, without hashes of paths, which only
        a cache of accumulators needs.
        """
        inputs_of = {}
        for sink in self.graph.get_collection(analyzer_nodes.ALL_REPLACEMENTS):
            visitor = graph_tools.SourcedTensorsVisitor()
            nodes.Traverser(visitor).visit_value_node(sink.future)
            inputs_of[sink.tensor.name] = self._sources(visitor.sourced_tensors)
        return inputs_of

    def check(self, fingerprint: Mapping[str, set[str]]) -> None:
        """Compares the analyzers with the analyzers of the first graph.

        Raises:
          UserError: The analyzers come in another order.
        """
        if any(fingerprint.get(n) != of for n, of in self.fingerprint().items()):
            raise UserError(
                "`preprocessing_fn` does not call its analyzers in the same order each "
                "time that it is traced",
                remedy="Avoid loops over sets, random numbers and global state, or "
                "give each analyzer a `name`.",
            )

    def assets(self) -> dict[str, str]:
        """The file names of vocabularies by their keys."""
        assets_of = annotators.get_asset_annotations(self.graph)
        annotators.clear_asset_annotations(self.graph)
        return assets_of

    def needed(self, tensors: Tensors) -> list[str]:
        """Names of the inputs that `tensors` depend on."""
        return sorted(self._sources(tf.nest.flatten(tensors, expand_composites=True)))

    def _sources(self, tensors: Iterable[tf.Tensor]) -> set[str]:
        """Names of the inputs that plain tensors depend on.

        As `graph_tools.get_dependent_inputs`, which takes time by inputs times tensors.
        """
        analyzer, sources = self._graph_analyzer, set[Any]()
        for tensor in tensors:
            analyzer.ready_to_run(tensor)  # explains its errors
            result = analyzer._graph_analyzer.analyze_tensor(tensor)
            sources |= result.dependent_sources
        return {self._names[each] for each in sources & self._names.keys()}

    @functools.cached_property
    def _graph_analyzer(self) -> graph_tools.InitializableGraphAnalyzer:
        sinks = self.graph.get_collection(analyzer_nodes.ALL_REPLACEMENTS)
        ready = [(sink.tensor, False) for sink in sinks]
        return graph_tools._QuietInitializableGraphAnalyzer(
            self.graph, self.inputs, ready
        )

    @functools.cached_property
    def _names(self) -> dict[Any, str]:
        """The name of the input that each plain tensor is a part of."""
        return {
            tf_utils.hashable_tensor_or_op(part): name
            for name, value in self.inputs.items()
            for part in tf.nest.flatten(value, expand_composites=True)
        }

    def part(
        self, needed: list[str], tensors: Tensors
    ) -> wrap_function.WrappedFunction:
        """The part of the graph from `needed` inputs to `tensors`."""
        feeds = [self.inputs[name] for name in needed]
        whole = wrap_function.WrappedFunction(
            self.graph,
            variable_holder=wrap_function.VariableHolder(share_variables=True),
        )
        return whole.prune(tf.nest.flatten(feeds, expand_composites=True), tensors)

    def save_part(self, part: wrap_function.WrappedFunction, folder: str) -> None:
        """Saves a part of the graph, with the tables that it uses."""
        paths = self.graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS)
        self._module.assets = list(map(tf.saved_model.Asset, paths))
        self._module.pruned_variables = part.variables
        self._module.transform_fn = part
        tf.saved_model.save(self._module, folder)

    def save(self, folder: str, assets: Mapping[str, str]) -> None:
        """Writes the graph and the schema of its outputs, as TFT does.

        Args:
          folder: Gets `transform_fn/` and `transformed_metadata/`.
          assets: From the first graph.
        """
        names = tft.TFTransformOutput
        whole = saved_transform_io_v2.optimize_concrete_function(
            self._concrete, strip_control_dependencies=False
        )
        self.save_part(whole, os.path.join(folder, names.TRANSFORM_FN_DIR))
        described = os.path.join(folder, names.TRANSFORMED_METADATA_DIR)
        metadata_io.write_metadata(self._metadata(), described)
        if assets:
            path = os.path.join(described, names.ASSET_MAP)
            with tf.io.gfile.GFile(path, "w") as file:
                file.write(json.dumps(assets))

    def _metadata(self) -> dataset_metadata.DatasetMetadata:
        """The schema of the outputs, with TFT's notes about them in the graph.

        TFT would trace the function once more, with constant inputs; only notes that
        depend on an input need that.
        """
        notes = self._notes()
        flat = tf.nest.flatten(notes)
        tensors = {str(n): x for n, x in enumerate(flat) if isinstance(x, tf.Tensor)}
        if self.needed(tensors):
            return impl_helper._trace_and_get_metadata(
                self._concrete, self.inputs, self._function, self._temporary,
                self._results or {},
            )  # fmt: skip
        values = self.part([], tensors)() if tensors else {}
        known = [values.get(str(n), x) for n, x in enumerate(flat)]
        packed = tf.nest.pack_sequence_as(notes, list(map(tf.constant, known)))
        schema = schema_inference.infer_feature_schema_v2(
            self.outputs, lambda: packed, evaluate_schema_overrides=True
        )
        return dataset_metadata.DatasetMetadata(schema=schema)

    def _notes(self) -> dict[str, list[Any]]:
        """TFT's notes, by kind: names of outputs, and tensors with the noted values.

        As in `schema_inference.get_traced_metadata_fn`.
        """
        private = schema_inference
        names = private._get_tensor_value_to_key_map(self._returned)
        ranges = private._get_schema_overrides(
            self.graph,
            names,
            private._TF_METADATA_TENSOR_COLLECTION,
            [
                private._TF_METADATA_TENSOR_MIN_COLLECTION,
                private._TF_METADATA_TENSOR_MAX_COLLECTION,
            ],
        )
        extra = private._get_schema_overrides(
            self.graph,
            names,
            private._TF_METADATA_EXTRA_ANNOTATION,
            [
                private._TF_METADATA_EXTRA_ANNOTATION_TYPE_URL,
                private._TF_METADATA_EXTRA_ANNOTATION_PROTO,
            ],
            private._TF_METADATA_EXTRA_ANNOTATION_GLOBAL,
        )
        sparse = private._get_sparse_output_annotations_v2(self.graph, names)
        field = private._METADATA_SPARSE_OUTPUT_OVERRIDES_FIELD
        return {**ranges, **extra, field: [sparse]}


def is_stateful(operation: str) -> bool:
    """Whether a type of operations of TensorFlow may depend on more than its inputs."""
    return op_def_registry.get(operation).is_stateful


def build(traced: Traced) -> nodes.ValueNode:
    """The graph of operations that ends with the final graph of TensorFlow."""
    future, _, _ = analysis_graph_builder.build(
        traced.graph, traced.inputs, traced.outputs
    )
    return future

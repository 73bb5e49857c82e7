"""ML Metadata of Kubeflow Pipelines, read like ML Metadata of a local root.

KFP's driver and launcher record the same runs in another form:

| `strategos run` | Kubeflow Pipelines 2 |
|---|---|
| context `pipeline_run` of each run | `system.PipelineRun` |
| context `pipeline` | `system.Pipeline` |
| a context and an execution type for each node | property `task_name` |
| a node's parameters are properties | one property `inputs`, a structure |
| types such as `Model` | `tfx.Model` |
| whole numbers | floats |
| outcome of a run | none; the states of its executions |

No other module knows KFP's form.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.errors import UserError, first_line
from strategos.components.evaluation.metrics import METRICS, bare
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.root import RUN_CONTEXT

SCHEME = "grpc://"
"""Begins the address of a metadata service: grpc://HOST:PORT."""

_ADDRESS = re.compile(r"grpc://([A-Za-z0-9.-]+):(\d{1,5})")
_SECONDS = 20.0
_CONTEXTS = {RUN_CONTEXT: "system.PipelineRun", "pipeline": "system.Pipeline"}
_OURS = {theirs: ours for ours, theirs in _CONTEXTS.items()}
_STEP = "system.ContainerExecution"
_PREFIX = "tfx."
_OWN = (
    *("display_name", "task_name", "image", "pod_name", "pod_uid", "namespace"),
    *("resource_name", "pipeline_root", "cache_fingerprint", "cached_execution_id"),
    *("inputs", "outputs", "parent_dag_id", "store_session_info", "tfx_version"),
)


def is_address(text: str) -> bool:
    """Whether `text` names a metadata service, and not a root."""
    return text.startswith(SCHEME)


class KubeflowStore(Store):
    """The metadata service of an installation of Kubeflow Pipelines, for reading.

    Args:
      address: grpc://HOST:PORT.

    Raises:
      UserError: The address is malformed, or no metadata service answers there.
      NoRunsError: No compiled pipeline has run there.
    """

    def __init__(self, address: str):
        match = _ADDRESS.fullmatch(address.rstrip("/"))
        if not match:
            raise UserError(
                "this is no address of a metadata service",
                received=address,
                expected="grpc://HOST:PORT, such as grpc://localhost:8080 for "
                "`kubectl port-forward service/metadata-grpc-service 8080`",
            )
        config = mlmd.MetadataStoreClientConfig(host=match[1], port=int(match[2]))
        config.client_timeout_sec = _SECONDS
        self._address = address
        self.root, self.is_local = None, True  # no leases of `strategos run` in there
        self.mlmd = Translated(ml_metadata.MetadataStore(config))
        with self.readable():
            if not self.mlmd.get_contexts_by_type("pipeline"):
                raise NoRunsError(f"no run is recorded at {address} yet.")

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Converts a failure of the service inside the block to an error for users."""
        try:
            yield
        except (ml_metadata.errors.StatusError, RuntimeError) as error:
            raise UserError(
                f"the metadata service of Kubeflow Pipelines at {self._address} cannot "
                f"be read: {first_line(str(error))}",
                remedy="Check the address, and the network or the port-forward of "
                "service/metadata-grpc-service.",
            ) from error


class Translated:
    """The methods of an `ml_metadata.MetadataStore` that reading needs, translated.

    Args:
      store: A connection to KFP's metadata service.
    """

    def __init__(self, store: ml_metadata.MetadataStore):
        self._store = store

    def get_contexts(self, list_options: Any = None) -> list[mlmd.Context]:
        """See MetadataStore."""
        return self._contexts(self._store.get_contexts(list_options=list_options))

    def get_contexts_by_type(self, type_name: str) -> list[mlmd.Context]:
        """See MetadataStore."""
        name = _CONTEXTS.get(type_name, type_name)
        return self._contexts(self._store.get_contexts_by_type(name))

    def get_context_by_type_and_name(
        self, type_name: str, context_name: str
    ) -> mlmd.Context | None:
        """See MetadataStore."""
        name = _CONTEXTS.get(type_name, type_name)
        context = self._store.get_context_by_type_and_name(name, context_name)
        return self._contexts([context])[0] if context else None

    def get_contexts_by_execution(self, execution_id: int) -> list[mlmd.Context]:
        """See MetadataStore; one of them stands for the node."""
        contexts = self._store.get_contexts_by_execution(execution_id)
        for each in contexts:
            each.type = _OURS.get(each.type, each.type)
        (execution,) = self._store.get_executions_by_id([execution_id])
        return [*contexts, mlmd.Context(type="node", name=_node(execution))]

    def get_executions_by_context(self, context_id: int) -> list[mlmd.Execution]:
        """See MetadataStore; only executions of steps."""
        return [_execution(each) for each in self._steps(context_id)]

    def get_executions_by_id(self, ids: Iterable[int]) -> list[mlmd.Execution]:
        """See MetadataStore."""
        return [_execution(each) for each in self._store.get_executions_by_id(ids)]

    def get_artifacts(self, list_options: Any = None) -> list[mlmd.Artifact]:
        """See MetadataStore."""
        artifacts = self._store.get_artifacts(list_options=list_options)
        return [restored(each) for each in artifacts]

    def get_artifacts_by_type(self, type_name: str) -> list[mlmd.Artifact]:
        """See MetadataStore."""
        artifacts = self._store.get_artifacts_by_type(_PREFIX + type_name)
        return [restored(each) for each in artifacts]

    def get_artifacts_by_id(self, ids: Iterable[int]) -> list[mlmd.Artifact]:
        """See MetadataStore."""
        return [restored(each) for each in self._store.get_artifacts_by_id(ids)]

    def get_artifacts_by_uri(self, uri: str) -> list[mlmd.Artifact]:
        """See MetadataStore."""
        return [restored(each) for each in self._store.get_artifacts_by_uri(uri)]

    def get_events_by_execution_ids(self, ids: Iterable[int]) -> list[mlmd.Event]:
        """See MetadataStore."""
        return self._store.get_events_by_execution_ids(ids)

    def get_events_by_artifact_ids(self, ids: Iterable[int]) -> list[mlmd.Event]:
        """See MetadataStore."""
        return self._store.get_events_by_artifact_ids(ids)

    def _contexts(self, contexts: Iterable[mlmd.Context]) -> list[mlmd.Context]:
        contexts = list(contexts)
        for each in contexts:
            each.type = _OURS.get(each.type, each.type)
            if each.type == RUN_CONTEXT:
                _describe(each, self._steps(each.id))
        return contexts

    def _steps(self, context: int) -> list[mlmd.Execution]:
        executions = self._store.get_executions_by_context(context)
        return [each for each in executions if each.type == _STEP]


def _describe(run: mlmd.Context, steps: list[mlmd.Execution]) -> None:
    """Adds the properties that `strategos run` records, from the states of steps.

    A step that was terminated stays `RUNNING` in KFP's ML Metadata, and so does its run
    here.
    """
    facts = run.custom_properties
    facts["runner"].string_value = "kubeflow"
    nodes = {_node(step): step for step in steps}
    states = {node: step.last_known_state for node, step in nodes.items()}
    bad = [node for node, state in states.items() if state == mlmd.Execution.FAILED]
    if bad:
        only_judges = bad[0] != node_ids.INFRA_VALIDATOR
        outcome = node_ids.GATES.get(bad[0], "failed") if only_judges else "failed"
        facts["failed_node"].string_value = bad[0]
    elif not steps or mlmd.Execution.RUNNING in states.values():
        facts["outcome"].string_value = "running"
        return
    else:
        judged = node_ids.EVALUATION_GATE in nodes
        outcome = "blessed" if judged else "finished"
    facts["outcome"].string_value = outcome
    ended = max(step.last_update_time_since_epoch for step in steps)
    facts["finished"].double_value = ended / 1000


def _node(step: mlmd.Execution) -> str:
    return step.custom_properties["task_name"].string_value


def _execution(execution: mlmd.Execution) -> mlmd.Execution:
    """Names the type by the node, and makes each input parameter a property."""
    inputs = mlmd.Value()
    inputs.CopyFrom(execution.custom_properties["inputs"])
    execution.type = _node(execution)
    _reduce(execution)
    for name, value in inputs.struct_value.fields.items():
        kind = value.WhichOneof("kind")
        if kind == "string_value":
            execution.custom_properties[name].string_value = value.string_value
        elif kind == "number_value":
            _put_number(execution.custom_properties[name], value.number_value)
    return execution


def restored(artifact: mlmd.Artifact) -> mlmd.Artifact:
    """Restores the name of an artifact's type, and whole numbers, in place."""
    artifact.type = artifact.type.removeprefix(_PREFIX)
    _reduce(artifact)
    for name, value in artifact.custom_properties.items():
        # A metric may be 1.0, and stays a float.
        is_metric = artifact.type == "ModelEvaluation" and bare(name) in METRICS
        if value.WhichOneof("value") == "double_value" and not is_metric:
            _put_number(value, value.double_value)
    return artifact


def _reduce(record: mlmd.Artifact | mlmd.Execution) -> None:
    for name in _OWN:
        record.custom_properties.pop(name, None)


def _put_number(value: mlmd.Value, number: float) -> None:
    if number.is_integer():
        value.int_value = int(number)
    else:
        value.double_value = number

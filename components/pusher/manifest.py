"""The manifest of a pushed version describes its model without ML Metadata.

`assets.extra` is the folder of a SavedModel for files that no model server loads. The
manifest appears with the version, and is copied with it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strategos.components import exported, lone_messages
from strategos.components.evaluation.metrics import measured

if TYPE_CHECKING:
    from tfx import types


def of(
    model: str,
    run_id: str,
    candidate: str,
    baseline: str,
    inputs: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    """Makes the manifest of a model that is about to be pushed.

    Args:
      model: The SavedModel's folder, a path or a URL.
      run_id: The run that pushes the model.
      candidate: Key of the data, code and settings behind the model.
      baseline: Folder of the model that the candidate was compared with, or "none".
      inputs: The Pusher's input artifacts; `examples` and `evaluation` may be missing.

    Returns:
      JSON-able values: `run_id`, `spans` ([number, version] each), `metrics`,
      `strategy`, `fingerprint`, `baseline`, `model` (the id of the Model artifact), and
      `signatures`, a hash of the names, types and shapes in all signatures.
    """
    spans = _property(inputs, "examples", "spans")
    return {
        "run_id": run_id,
        "spans": json.loads(spans) if spans else [],
        "metrics": _metrics(inputs),
        "strategy": _property(inputs, "model", "strategy"),
        "fingerprint": candidate,
        "baseline": baseline,
        "model": next((each.id for each in inputs.get("model", ())), 0),
        "signatures": signatures(model),
    }


def signatures(model: str) -> str:
    """Hashes the signatures of a SavedModel: equal if clients see no difference.

    Args:
      model: The SavedModel's folder, a path or a URL.
    """
    from tfx.dsl.io import fileio

    with lone_messages.of("tensorflow"):
        from tensorflow.core.protobuf import saved_model_pb2

    with fileio.open(os.path.join(model, exported.SAVED_MODEL), "rb") as file:
        parsed = saved_model_pb2.SavedModel.FromString(file.read())
    tensors = {
        name: [_tensors(signature.inputs), _tensors(signature.outputs)]
        for graph in parsed.meta_graphs
        for name, signature in graph.signature_def.items()
    }
    return hashlib.sha256(json.dumps(tensors, sort_keys=True).encode()).hexdigest()[:16]


def _tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [each.dtype, [dim.size for dim in each.tensor_shape.dim]]
        for name, each in tensors.items()
    }


def _property(
    inputs: Mapping[str, Sequence[types.Artifact]], key: str, name: str
) -> str:
    for artifact in inputs.get(key, ()):
        return artifact.get_string_custom_property(name)
    return ""


def _metrics(inputs: Mapping[str, Sequence[types.Artifact]]) -> dict[str, float]:
    # Read by name: launchers of clusters hand all numbers over as floats.
    return {
        name: artifact.get_custom_property(name)
        for artifact in inputs.get("evaluation", ())
        for name in measured(artifact.mlmd_artifact.custom_properties)
    }

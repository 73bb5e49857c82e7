"""Loads a SavedModel as a model server would, and calls it; does not import TFX.

`python -m strategos.components.infra_validator.probe`, started by the executor.
"""

from __future__ import annotations

from typing import Any

from strategos.components.errors import GateStoppedError
from strategos.components.exported import SERVE
from strategos.components.slow_imports import tf
from strategos.components.worker_process import serve


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Calls a model with the first examples of some files.

    Args:
      request: `model`, the SavedModel's folder; `files`, TFRecord files; `requests`,
        the number of examples, 0 to load the model only.

    Returns:
      `answers`, the number of examples, and `outputs`, the names of the model's
      outputs.

    Raises:
      GateStoppedError: The model does not load, lacks the signature, or does not return
        finite numbers for each example.
    """
    import numpy as np

    model = request["model"]
    signature = _signature(model)
    if not request["requests"]:
        return {"answers": 0, "outputs": sorted(signature.structured_outputs)}
    examples = _examples(request["files"], request["requests"])
    try:
        outputs = signature(tf.constant(examples))
    except Exception as error:
        raise _failure(model, f"fails on real examples: {error}") from error
    for name, value in outputs.items():
        answers = value.numpy()
        if answers.shape[:1] != (len(examples),):
            raise _failure(
                model,
                f"gives `{name}` of shape {list(answers.shape)} for {len(examples)} "
                "examples, expected one answer per example",
            )
        if answers.dtype.kind == "f" and not np.isfinite(answers).all():
            bad = int((~np.isfinite(answers)).reshape(len(examples), -1).any(1).sum())
            raise _failure(
                model,
                f"gives NaN or infinite `{name}` for {bad} of {len(examples)} examples",
            )
    return {"answers": len(examples), "outputs": sorted(outputs)}


def _signature(model: str) -> Any:
    try:
        loaded = tf.saved_model.load(model)
    except Exception as error:
        raise _failure(model, f"does not load: {error}") from error
    if SERVE not in loaded.signatures:
        names = ", ".join(sorted(loaded.signatures)) or "none"
        raise _failure(model, f"has no signature `{SERVE}`; it has: {names}")
    signature = loaded.signatures[SERVE]
    inputs = signature.structured_input_signature[1]
    wanted = {"examples": tf.TensorSpec([None], tf.string)}
    if {name: (s.shape.rank, s.dtype) for name, s in inputs.items()} != {
        name: (s.shape.rank, s.dtype) for name, s in wanted.items()
    }:
        raise _failure(
            model,
            f"`{SERVE}` takes {sorted(inputs)}, expected `examples` string[batch]",
        )
    signature.model = loaded  # its variables live as long as the model does
    return signature


def _examples(files: list[str], count: int) -> list[bytes]:
    from strategos.components.records import read

    examples = list(read.records(files).take(count).as_numpy_iterator())
    if not examples:
        raise GateStoppedError(
            "the eval split has no examples to call the model with",
            key="data.split",
            remedy="Use more data, or give eval a larger share.",
        )
    return examples


def _failure(model: str, what: str) -> GateStoppedError:
    return GateStoppedError(
        f"The model {model} {what}. The last good model keeps serving."
    )


if __name__ == "__main__":
    serve(probe)

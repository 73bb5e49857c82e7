"""Measures a training step: the sizes of a model, and the time of a few real steps.

`python -m strategos.components.trainer.run.measure`, for `strategos explain`; the model
is discarded afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from strategos.components.errors import UserError
from strategos.components.slow_imports import tf
from strategos.components.trainer.compat.autograph import convert_user_code_only
from strategos.components.trainer.distribution import devices
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import modules
from strategos.components.user_code.user_errors import explain
from strategos.components.worker_process import serve

_STEPS = 30
_SECONDS = 4.0  # time-out for the timed steps


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Builds the model, computes one gradient, and times steps.

    Args:
      request: `spec`, a `WorkerSpec` with patterns as `train_files` and a schema's
        folder as `schema_file`; `strategy`, its name; `replicas`; `sample`, the rows of
        the batch for the gradient; `timed`, batch sizes in rows to time steps with.

    Returns:
      `rows`, `files`, `bytes` of the training split; unless the user's own loop builds
      the model, `parameters`, `trainable`, and `dense_bytes` and `sparse_bytes` of the
      gradients; `seconds` of a step for each of `timed`, in their order, empty if the
      loop has the optimizer.

    Raises:
      UserError: The user's code or data cannot be trained with.
    """
    convert_user_code_only()
    from strategos.components.trainer.run import session, tfx_run_fn

    devices.configure("one_device", "GPU", 1)
    spec = with_files(WorkerSpec.from_json(request["spec"]))
    if modules.takes_fn_args(spec.folder, spec.module):
        rows = tfx_run_fn.count_rows(spec.train_files)
        return {"rows": rows, **_files(spec), "seconds": []}
    model, split = session.untrained(spec, request["strategy"], request["replicas"])
    facts = {"rows": split.rows, **_files(spec), "seconds": []}
    facts.update(_sizes(model))
    if getattr(model, "optimizer", None) is None:
        return facts
    with _blamed(spec):
        features, labels = split.sample(min(request["sample"], split.rows))
        facts.update(_gradient_bytes(model, features, labels))
        facts["seconds"] = _step_seconds(model, split, request["timed"])
    return facts


def with_files(spec: WorkerSpec) -> WorkerSpec:
    """A training with the files of the patterns that stand for them.

    Args:
      spec: A training with patterns as `train_files` and a schema's folder as
        `schema_file`.
    """
    from tensorflow.io import gfile

    files = [file for pattern in spec.train_files for file in gfile.glob(pattern)]
    (schema,) = gfile.glob(f"{spec.schema_file}/*.pbtxt")
    return dataclasses.replace(
        spec, train_files=tuple(sorted(files)), schema_file=schema
    )


def _files(spec: WorkerSpec) -> dict[str, int]:
    from tensorflow.io import gfile

    sizes = [gfile.stat(file).length for file in spec.train_files]
    return {"files": len(sizes), "bytes": sum(sizes)}


def _variables(model: Any) -> list[Any]:
    """The trained variables, as TensorFlow variables."""
    from strategos.components.trainer.compat import keras3

    return list(map(keras3.of_tensorflow, model.trainable_variables))


def _sizes(model: Any) -> dict[str, int]:
    variables = _variables(model)
    return {
        "parameters": int(model.count_params()),
        "trainable": sum(each.shape.num_elements() for each in variables),
        "dense_bytes": sum(map(_bytes, variables)),
        "sparse_bytes": 0,
    }


def _gradient_bytes(model: Any, features: Any, labels: Any) -> dict[str, int]:
    """Bytes that a replica sends; of an embedding, only the rows in the batch."""
    with tf.GradientTape() as tape:
        loss = model.compute_loss(features, labels, model(features, training=True))
    gradients = [x for x in tape.gradient(loss, _variables(model)) if x is not None]
    sparse = [x for x in gradients if isinstance(x, tf.IndexedSlices)]
    return {
        "dense_bytes": sum(_bytes(x) for x in gradients if isinstance(x, tf.Tensor)),
        "sparse_bytes": sum(_bytes(x.values) + _bytes(x.indices) for x in sparse),
    }


def _bytes(tensor: Any) -> int:
    return tensor.shape.num_elements() * tensor.dtype.size


def _step_seconds(model: Any, split: Any, batches: list[int]) -> list[float]:
    """Shortest measured time of a step, for each batch size.

    The sizes take turns, so that other load on the machine affects all of them alike.
    """
    model.make_train_function()
    feeds = [
        iter(split.shuffled(rows, seed=1, epochs=None, drop_last=True))
        for rows in (min(rows, split.rows) for rows in batches)
    ]
    times: list[list[float]] = [[] for _ in feeds]
    began = time.perf_counter()
    for turn in range(_STEPS):
        for feed, seen in zip(feeds, times, strict=True):
            before = time.perf_counter()
            for value in tf.nest.flatten(model.train_function(feed)):
                value.numpy()  # waits for a GPU
            seen.append(time.perf_counter() - before)
        if turn and time.perf_counter() - began > _SECONDS:
            break
    return [min(seen) for seen in times]


@contextlib.contextmanager
def _blamed(spec: WorkerSpec) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = explain(error, spec.folder)
        raise UserError(f"a training step fails: {text}") from error


if __name__ == "__main__":
    serve(work)

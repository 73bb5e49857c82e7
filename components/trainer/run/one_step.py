"""One training step in this process, eagerly: breakpoints and prints of the user work.

For `strategos debug`. The step is the model's own `train_step`, called once on a few
rows of one batch of the training, in the order in which the training reads them. Its
inputs and results are reported as soon as they are known, so that a step which fails
has reported all that happened before.
"""

from __future__ import annotations

import bdb
import functools
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import BadInputError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.compat.autograph import convert_user_code_only
from strategos.components.trainer.data.tensor_values import Values, first_rows, summary
from strategos.components.trainer.distribution import devices
from strategos.components.trainer.model import effects, workload
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.run import session
from strategos.components.trainer.run.measure import with_files
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import modules
from strategos.components.user_code.user_errors import is_own

Show = Callable[[str, Sequence[Values]], None]

_LOCALS = 20  # at most, of the line that fails


def run(spec: WorkerSpec, *, rows: int, step: int, show: Show) -> None:
    """Runs one step of the training of `spec` on one device.

    Args:
      spec: From `transformed.worker_spec`.
      rows: Number of rows, the first ones of the step's global batch.
      step: Number of the step that the rows are from, counted from 1. The weights are
        those of an untrained model.
      show: Called as `show(title, values)`: for the features, the label, the weights
        (if there are any), the outputs,
        the loss, the gradients and the metrics; after an error for the variables of
        the line that failed.

    Raises:
      UserError: The user's code or data cannot be trained with; names file and line.
      KeyboardInterrupt: The user has left the debugger.
    """
    convert_user_code_only()
    devices.configure("one_device", "GPU", 1)
    session.configure(spec)
    logging.getLogger().setLevel(logging.WARNING)
    spec = with_files(spec)
    if modules.takes_fn_args(spec.folder, spec.module):
        raise _own_loop("run_fn(fn_args)")
    code = UserModule(spec)
    if code.run_fn is not None:
        raise _own_loop("run_fn(context)")
    examples = workload.split(spec, spec.train_files)
    examples = workload.with_class_weights(spec, examples)
    context = workload.context(spec, examples.rows, 1)
    batches = examples.shuffled(
        spec.batch_size,
        seed=spec.seed,
        epochs=None,
        first_step=step - 1,
        drop_last=context.drops_last_batch,
    )
    batch = next(iter(batches))
    # Only now: functions of tf.data are traced in any case, and would warn of it.
    tf.config.run_functions_eagerly(True)
    batch = tf.nest.map_structure(lambda x: first_rows(x, rows), batch)
    features, label, *weights = batch
    show("features", [summary(name, features[name]) for name in sorted(features)])
    heads = label.items() if isinstance(label, dict) else [(spec.target.name, label)]
    show("label", [summary(*head) for head in heads])
    if weights:
        show("weight", [summary(spec.weight or "class_weight", *weights)])
    with code.blamed("the step fails"):
        try:
            model = code.build_model(context)
            code.check_inputs(model, features)
            model.run_eagerly = True
            _step(model, (keras3.taken(model, features), label, *weights), show)
        except bdb.BdbQuit:
            raise KeyboardInterrupt from None
        except Exception as error:
            _show_locals(error, spec.folder, show)
            raise


def _own_loop(function: str) -> BadInputError:
    return BadInputError(
        f"`strategos debug` runs the `train_step` of a compiled model, and the module "
        f"trains by a loop of its own, `{function}`",
        key="trainer.module",
        remedy="Call the loop's step from a script, with a batch of your own.",
    )


def _step(model: Any, batch: tuple[Any, ...], show: Show) -> None:
    """Runs the model's `train_step` once, and reports its tensors on the way."""
    _report_outputs(model, show)
    _report_loss(model, show)
    reported = _report_gradients(model, show)
    # Keras's `fit` lets AutoGraph convert an own `train_step`, which would show
    # generated code in the debugger.
    step = tf.autograph.experimental.do_not_convert(model.train_step)
    logs = step(batch)
    if not reported:
        note = "the optimizer was given none"
        show("gradients", [Values("", note=note)])
    if isinstance(logs, Mapping):
        show("metrics", [summary(name, _number(x)) for name, x in logs.items()])


def _number(value: Any) -> Any:
    result = getattr(value, "result", None)
    return np.asarray(result() if callable(result) else value)


def _report_outputs(model: Any, show: Show) -> None:
    call = model.call

    @functools.wraps(call)
    def observed(*args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        named = effects.by_output(model, outputs)
        show("output", [summary(name, tensor) for name, (_, tensor) in named.items()])
        return outputs

    model.call = observed


def _report_loss(model: Any, show: Show) -> None:
    compute = model.compute_loss

    @functools.wraps(compute)
    def observed(*args: Any, **kwargs: Any) -> Any:
        loss = tf.autograph.experimental.do_not_convert(compute)(*args, **kwargs)
        show("loss", [summary("loss", loss)])
        return loss

    model.compute_loss = observed


def _report_gradients(model: Any, show: Show) -> list[int]:
    """Reports gradients where the optimizer applies them; returns their numbers."""
    optimizer, reported = keras3.unscaled(model.optimizer), list[int]()
    if keras3.is_model(model):
        apply = optimizer.apply

        @functools.wraps(apply)
        def of_keras3(grads: Any, trainable_variables: Any = None) -> Any:
            variables = trainable_variables or model.trainable_variables
            pairs = list(zip(grads, variables, strict=True))
            reported.append(len(pairs))
            show("gradients", [*map(_gradient, pairs)])
            return apply(grads, trainable_variables)

        optimizer.apply = of_keras3
        return reported
    apply_gradients = optimizer.apply_gradients

    @functools.wraps(apply_gradients)
    def of_tf_keras(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        reported.append(len(pairs))
        show("gradients", [*map(_gradient, pairs)])
        return apply_gradients(pairs, *args, **kwargs)

    optimizer.apply_gradients = of_tf_keras
    return reported


def _gradient(pair: tuple[Any, Any]) -> Values:
    gradient, variable = pair
    name = getattr(variable, "path", variable.name)
    if gradient is None:
        return Values(name, note="None: the loss does not depend on it")
    return summary(name, gradient, norm=True)


def _show_locals(error: Exception, folder: str, show: Show) -> None:
    """Reports the variables of the innermost line of the user's code."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(x, line) for x, line in frames if is_own(x.f_code.co_filename, folder)]
    if own and (values := list(_locals(own[-1][0]))):
        frame, line = own[-1]
        show(f"variables at {frame.f_code.co_filename}:{line}", values[:_LOCALS])


def _locals(frame: FrameType) -> Iterator[Values]:
    composite = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)
    for name, value in frame.f_locals.items():
        if isinstance(value, (tf.Tensor, tf.Variable, np.ndarray, *composite)):
            if tf.is_symbolic_tensor(value):
                yield Values(name, value.dtype.name, str(value.shape), note="symbolic")
            else:
                yield summary(name, value)
        elif isinstance(value, (bool, int, float, str, bytes, type(None))):
            yield Values(name, type(value).__name__, note=repr(value)[:60])

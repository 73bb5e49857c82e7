"""Compares the exported model with the trained one, before anything is published."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.exported import ERROR, SERVE
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.model.comparison import answers
from strategos.components.transformed import sample
from strategos.components.user_code.user_errors import operation_error

_OVERRIDDEN = ("test_step", "compute_loss", "compute_metrics")
_ROWS = 1.5  # that may pass a threshold of a metric by rounding

_REBUILT = (
    "The export calls `build_model` again and reads the weights; all else must be the "
    "same each time. Look for constants drawn at random or adapted to a random sample "
    "(`np.random.default_rng()`, `Normalization.adapt`): seed them (`context.seed`), "
    "or keep them in a weight (`self.add_weight(trainable=False)`). Look, too, for "
    "variables that Keras does not track."
)
_SAVED = (
    "The SavedModel lacks something of the model or of Transform's graph, such as a "
    "lookup table, or pairs features with other inputs. Keep tables and variables in "
    "attributes of layers, and give each `keras.Input` the name of its feature."
)
_PYTHON = (
    "The model calls Python by `tf.py_function` or `tf.numpy_function`, which no "
    "SavedModel contains: use operations of TensorFlow."
)

Metrics = Mapping[str, float]


@contextlib.contextmanager
def saved_answers(
    folder: str, graph: str
) -> Iterator[futures.Future[answers.Answers | None]]:
    """Calls a SavedModel beside the `with` block, most of it outside of Python.

    Args:
      folder: The SavedModel.
      graph: Folder of the transform graph, with the sample of raw examples.

    Yields:
      Its answers, once the block has ended; None if Transform wrote no sample.
    """
    with futures.ThreadPoolExecutor(1) as thread:
        yield thread.submit(_saved_answers, folder, graph)


def check_answers(
    rebuilt: answers.Answers,
    saved: answers.Answers | None,
    trained: answers.Answers,
    allowed: float,
) -> None:
    """Rejects answers that differ from the trained model's on the same rows.

    Args:
      rebuilt: Answers of the model that the export has built.
      saved: Answers of the SavedModel on the raw rows; None if the rows are unknown.
      trained: Answers of the trained model.
      allowed: Tolerance, see `answers.tolerance`.

    Raises:
      UserError: The answers differ.
    """
    models = (("exported model", rebuilt, _REBUILT), ("SavedModel", saved, _SAVED))
    for what, answered, remedy in models:
        if answered and ERROR not in trained:  # the export adds it
            answered = {name: x for name, x in answered.items() if name != ERROR}
        differing = answered and answers.difference(answered, trained, allowed)
        if differing:
            raise UserError(
                f"the {what} does not answer as the trained model, on the first and "
                f"last rows of the evaluation split: {differing}",
                remedy=remedy,
            )


def warn_of_neighbours(
    rebuilt: answers.Answers, few: answers.Answers, allowed: float
) -> None:
    """Warns if the answer to a row depends on the other rows of its batch.

    Args:
      rebuilt: Answers on the first and last rows of the evaluation split.
      few: Answers on fewer of these rows, also from both ends.
      allowed: Tolerance, see `answers.tolerance`.
    """
    same: answers.Answers = {}
    for name, answered in few.items():
        half = len(answered) // 2
        same[name] = np.concatenate([rebuilt[name][:half], rebuilt[name][-half:]])
    # Sequences that are padded to the longest of a batch have other shapes.
    comparable = [name for name in few if few[name].shape == same[name].shape]
    one, other = ({name: x[name] for name in comparable} for x in (few, same))
    if differing := answers.difference(one, other, allowed):
        events.emit(
            "warning",
            message=f"the answer to a row depends on the other rows of its batch: "
            f"{differing}, if {len(next(iter(few.values())))} rows are asked for in "
            "place of all. So metrics depend on the batches, and a model server may "
            "answer otherwise. Look for operations over the first axis (`axis=0`), "
            "normalization with `training=True`, and padding that no mask hides.",
        )


def check_metrics(
    model: tf.keras.Model,
    facts: Mapping[str, Any],
    metrics: Metrics,
    again: Callable[[], Metrics],
    rows: int,
) -> None:
    """Rejects a model if its metrics differ from those that `fit` measured.

    Metrics that depend on how batches are divided among replicas are not compared, nor
    are metrics that differ from evaluation to evaluation.

    Args:
      model: The exported model.
      facts: The facts of the training, with `history` and `weights_epoch`.
      metrics: Its metrics.
      again: Evaluates it once more.
      rows: Rows of the evaluation split.

    Raises:
      UserError: A metric differs.
    """
    epoch = facts.get("weights_epoch")
    if epoch is None:
        return
    expected = {
        name: facts["history"][f"val_{name}"][epoch - 1]
        for name in metrics
        if len(facts["history"].get(f"val_{name}", ())) >= epoch
        and (facts["replicas"] == 1 or _is_independent(name, model))
    }
    allowed = answers.tolerance(model)
    differing = _differing(metrics, expected, allowed, rows)
    if differing:
        repeatable = _differing(again(), metrics, allowed, rows)
        logging.info(
            "metrics that change from evaluation to evaluation: %s", repeatable
        )
        differing = {n: text for n, text in differing.items() if n not in repeatable}
    if differing:
        raise UserError(
            f"the exported model does not measure what `fit` measured in epoch {epoch} "
            f"with the same weights: {', '.join(differing.values())}",
            remedy=_REBUILT,
        )


def _saved_answers(folder: str, graph: str) -> answers.Answers | None:
    """The answers of a SavedModel, loaded as TensorFlow Serving loads it."""
    examples = sample.load(graph)
    if not examples:
        return None
    v1 = tf.compat.v1
    config = v1.ConfigProto()
    # For one call, optimizing the graph takes longer than computing it; and on a GPU
    # the optimizer breaks layer normalization, see `compat/layer_norm.py`.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], folder)
        signature = loaded.signature_def[SERVE]
        outputs = {name: info.name for name, info in signature.outputs.items()}
        (signature_input,) = signature.inputs.values()
        try:
            return session.run(outputs, {signature_input.name: examples})
        except tf.errors.OpError as error:
            raise UserError(
                "the SavedModel fails on the first and last rows of the evaluation "
                f"split: {operation_error(error.message)}",
                remedy=_PYTHON if "pyfunc_" in error.message else _SAVED,
            ) from error


def _differing(
    metrics: Metrics, expected: Metrics, allowed: float, rows: int
) -> dict[str, str]:
    """Texts on the metrics that differ, by name."""
    texts = {}
    for name, value in expected.items():
        off, most = abs(metrics[name] - value), allowed * abs(value)
        if not _is_loss(name):
            most = max(most, allowed, _ROWS / rows)
        if off > most:
            texts[name] = f"{name} {metrics[name]:.5g} for {value:.5g}"
    return texts


def _is_loss(name: str) -> bool:
    return name == "loss" or name.endswith("_loss")


def _is_independent(name: str, model: tf.keras.Model) -> bool:
    """Whether a metric does not depend on how batches are divided among replicas."""
    stock = keras3.package_of(model).Model
    if any(getattr(type(model), x) is not getattr(stock, x) for x in _OVERRIDDEN):
        return False
    if _is_loss(name):
        # Keras 3 averages the loss of an output over batches, however many rows they
        # have, that of all outputs over rows.
        if name != "loss" and keras3.is_model(model):
            return False
        means = all(map(_is_mean, tf.nest.flatten(model.loss)))
        return means and not compiled.adds_losses(model)
    own = compiled.metrics_of_user(model)
    return not any(name == each or name.endswith(f"_{each}") for each in own)


def _is_mean(loss: Any) -> bool:
    """Whether a loss is a Keras loss that is averaged over the rows."""
    if loss is None or isinstance(loss, str):
        return True
    if getattr(loss, "reduction", None) in ("sum", "none"):
        return False
    return keras3.is_of_keras(loss)

"""TFMA's computation of a metric class, as accumulators that merge; imports TFMA.

TFMA turns a metric into combiners, which Beam feeds row by row, and into functions that
derive the result from their outputs. Here the same combiners are fed with the answers
that the Evaluator has already made, and no pipeline of Beam is needed.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.utils import config_util

from strategos.components.errors import UserError, first_line

_LABELS, _PREDICTIONS, _WEIGHTS = "labels", "predictions", "example_weights"
_STANDARD = frozenset({_LABELS, _PREDICTIONS, _WEIGHTS})
# Each call of a metric of Keras converts its code by AutoGraph, also outside of graphs.
_no_autograph = tf.autograph.experimental.do_not_convert
_EXPECTED = "a class that reads label, prediction and weight of each row"


class Computation:
    """The combiners of one metric, and the functions that derive its value.

    Args:
      class_name: Name of a class in `tfma.metrics` or `tf.keras.metrics`.
      config: Arguments of the class.
      weighted: Whether rows have weights.

    Raises:
      UserError: The class rejects its arguments, or reads more than labels and
        predictions of one model: features, queries, or a second model.
    """

    def __init__(self, class_name: str, config: Mapping[str, Any], weighted: bool):
        self._called = class_name
        computations = dict.fromkeys(_computations(class_name, config, weighted))
        kind = metric_types.MetricComputation
        self._steps = [each for each in computations if isinstance(each, kind)]
        self._derived = [each for each in computations if not isinstance(each, kind)]
        self._check()
        for step in self._steps:
            step.combiner.setup()
        # Combiners of Keras's metrics add each batch up in one metric of theirs.
        self._lock = threading.Lock()

    def empty(self) -> list[Any]:
        """Accumulators of no rows."""
        return [step.combiner.create_accumulator() for step in self._steps]

    @_no_autograph
    def add(
        self,
        accumulators: list[Any],
        labels: np.ndarray,
        predictions: np.ndarray,
        weights: np.ndarray | None,
    ) -> list[Any]:
        """Adds rows to accumulators, and returns them.

        Args:
          accumulators: From `empty`, `add` or `merge`; not to be used again.
          labels: int64 or float32 [rows, k]; k is 1 but for several classes a row.
          predictions: float32 [rows, n].
          weights: float32 [rows], as TFMA reads them; None for 1.
        """
        with self._lock:
            for row in range(len(labels)):
                extracts = {_LABELS: labels[row], _PREDICTIONS: predictions[row]}
                if weights is not None:
                    extracts[_WEIGHTS] = weights[row : row + 1]
                self._add_row(accumulators, extracts)
        return accumulators

    def _add_row(self, accumulators: list[Any], extracts: Mapping[str, Any]) -> None:
        for place, step in enumerate(self._steps):
            for element in _inputs(step, extracts):
                accumulators[place] = step.combiner.add_input(
                    accumulators[place], element
                )

    @_no_autograph
    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        """Accumulators of the rows of all parts, which are not to be used again.

        Args:
          parts: From `empty`, `add` or `merge`.
        """
        columns = zip(self._steps, zip(*parts, strict=True), strict=True)
        # As Beam does: some combiners take the first one, and then the rest.
        with self._lock:
            return [
                step.combiner.merge_accumulators(iter(each)) for step, each in columns
            ]

    @_no_autograph
    def compact(self, accumulators: list[Any]) -> list[Any]:
        """The accumulators, without rows that wait to be added up."""
        pairs = zip(self._steps, accumulators, strict=True)
        with self._lock:
            return [step.combiner.compact(each) for step, each in pairs]

    @_no_autograph
    def value(self, accumulators: list[Any]) -> float:
        """The metric; NaN if it is undefined.

        Args:
          accumulators: From `add` or `merge`; they can be used again.

        Raises:
          UserError: The class gives several numbers, or none.
        """
        values: dict[Any, Any] = {}
        pairs = zip(self._steps, accumulators, strict=True)
        with self._lock:
            for step, accumulator in pairs:
                values |= step.combiner.extract_output(accumulator)
        for derived in self._derived:
            values |= derived.result(values)
        numbers = {
            str(key.name): value
            for key, value in values.items()
            if not key.name.startswith("_")
        }
        if len(numbers) == 1:
            (number,) = map(np.asarray, numbers.values())
            if number.size == 1 and number.dtype.kind in "fiub":
                return float(number.reshape(()))
        raise UserError(
            f"`{self._called}` gives {_described(numbers)}, and a metric is one number",
            remedy="Choose one number by the arguments of the class in `config`, if it "
            "has them, such as a single threshold.",
        )

    def _check(self) -> None:
        needs = []
        for step in self._steps:
            for each in step.preprocessors:
                needs += sorted({*getattr(each, "include_filter", ())} - _STANDARD)
        if any(getattr(key, "is_diff", False) for x in self._all() for key in x.keys):
            needs.append("the predictions of two models at once")
        if needs:
            raise UserError(
                f"`{self._called}` reads {', '.join(dict.fromkeys(needs))}",
                expected=_EXPECTED,
            )

    def _all(self) -> Iterator[Any]:
        yield from (*self._steps, *self._derived)


@functools.cache
def of(class_name: str, config: str, weighted: bool) -> Computation:
    """The computation of a class, made once in each process.

    Args:
      class_name: Name of the class.
      config: Its arguments as JSON.
      weighted: Whether rows have weights.

    Raises:
      UserError: See `Computation`.
    """
    return Computation(class_name, json.loads(config), weighted)


def _computations(
    class_name: str, config: Mapping[str, Any], weighted: bool
) -> Sequence[Any]:
    """TFMA's computations for an EvalConfig with one metric."""
    eval_config = config_util.update_eval_config_with_defaults(
        config_pb2.EvalConfig(
            model_specs=[
                config_pb2.ModelSpec(
                    label_key="label", example_weight_key="weight" if weighted else ""
                )
            ],
            metrics_specs=[
                config_pb2.MetricsSpec(
                    metrics=[
                        config_pb2.MetricConfig(
                            class_name=class_name, config=json.dumps(dict(config))
                        )
                    ]
                )
            ],
        )
    )
    try:
        return metric_specs.to_computations(
            list(eval_config.metrics_specs), eval_config=eval_config
        )
    except Exception as error:  # each class raises errors of its own
        if "query_key" in str(error):
            raise UserError(
                f"`{class_name}` reads all rows of a query together",
                expected=_EXPECTED,
            ) from error
        # Keras puts the class and its arguments before the reason.
        reason = str(error).rpartition("Exception encountered: ")[2]
        raise UserError(
            f"`{class_name}` cannot be made: {first_line(reason)}",
            received=json.dumps(dict(config)) if config else "",
            remedy="Correct its `config`: the arguments of the class in the "
            "documentation of TFMA or Keras.",
        ) from error


def _inputs(step: Any, extracts: Mapping[str, Any]) -> Iterator[Any]:
    """The inputs of a combiner for a row, after TFMA's preprocessing of rows."""
    preprocessors = step.preprocessors
    standard = metric_types.StandardMetricInputsPreprocessor
    if not preprocessors or (
        len(preprocessors) == 1 and type(preprocessors[0]) is standard
    ):
        yield metric_types.StandardMetricInputs(dict(extracts))
        return
    inputs: list[Any] = [dict(extracts)]
    for each in preprocessors:
        inputs = list(itertools.chain.from_iterable(map(each.process, inputs)))
    yield from inputs


def _described(numbers: Mapping[str, Any]) -> str:
    if not numbers:
        return "no number"
    if len(numbers) > 1:
        return f"{len(numbers)} results ({', '.join(sorted(numbers)[:4])})"
    ((name, value),) = numbers.items()
    shape = getattr(value, "shape", None)
    return f"`{name}` as {type(value).__name__}" + (f" {shape}" if shape else "")

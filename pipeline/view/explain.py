"""Prints the result of `strategos explain distribution`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from strategos.components.trainer.distribution.strategy import Choice
from strategos.components.wording import counted, data_size
from strategos.pipeline.plan.explain import (
    Explanation,
    ModelSize,
    StepTime,
    TrainingData,
)
from strategos.pipeline.view import terminal


def show(explanation: Explanation, to: Console | None = None) -> None:
    """Prints an explanation, one labelled line per fact.

    Args:
      explanation: The explanation.
      to: Where to print; standard output by default.
    """
    to = to or terminal.console()
    for label, text in _lines(explanation):
        style = "yellow" if label == "warning" else ""
        line = Text.assemble("  ", (f"{label:11}", "dim"), (text, style))
        to.print(line, soft_wrap=True)


def _lines(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yields labels and texts."""
    choice = explanation.choice
    yield "strategy", f"{choice.name}: {choice.reason}"
    yield "replicas", _replicas(choice)
    part = explanation.batch_per_replica
    each = (
        ""
        if part in (None, explanation.global_batch)
        else f", {part:,} on each replica"
    )
    if not choice.is_synchronous and choice.workers > 1:
        each += ", a separate batch for each worker"
    yield "batch", f"{explanation.global_batch:,} rows a step{each}"
    if explanation.data:
        yield "data", _data_text(explanation.data, explanation.global_batch)
    if explanation.model:
        yield "model", _model_text(explanation.model)
    elif explanation.data:
        yield "model", "unknown: `run_fn(fn_args)` builds it"
    if explanation.step:
        yield "step", _step_text(explanation.step, choice)
    if explanation.missing:
        yield "unknown", "data and model: Transform has not run here yet. Run:"
        yield "", explanation.missing
    if explanation.warning:
        yield "warning", explanation.warning


def _replicas(choice: Choice) -> str:
    if choice.replicas is None:
        return "one per core of the TPU"
    if not choice.is_synchronous:
        servers = counted(choice.parameter_servers, "parameter server")
        return f"{counted(choice.workers, 'worker')}, each at its own pace; {servers}"
    if choice.workers == 1:
        return f"{choice.replicas} in one process"
    return f"{choice.replicas} in {choice.workers} processes"


def _data_text(data: TrainingData, batch: int) -> str:
    text = (
        f"{data.rows:,} rows for training, {data_size(data.bytes)} in "
        f"{counted(data.files, 'file')}; "
        f"{counted(data.steps_per_epoch, 'step')} an epoch"
    )
    if 0 < data.last_batch < batch:
        text += f", the last of {counted(data.last_batch, 'row')}"
    return text


def _model_text(model: ModelSize) -> str:
    trained = (
        "" if model.trainable == model.parameters else f" ({model.trainable:,} trained)"
    )
    text = f"{model.parameters:,} parameters{trained}; gradients of "
    text += f"{data_size(model.gradient_bytes)} a step"
    if model.sparse_bytes:
        text += f", {data_size(model.sparse_bytes)} of it for rows of embeddings"
    return text


def _step_text(step: StepTime, choice: Choice) -> str:
    what = "all replicas" if choice.is_synchronous else "each worker"
    return (
        f"{_time(step.alone)} on one device; {what}: {_time(step.compute)} to compute "
        f"and {_time(step.exchange)} to exchange gradients"
    )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"

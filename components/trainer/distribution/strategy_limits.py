"""Settings of a training that a strategy cannot do: rejected before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strategos.components.errors import UserError
from strategos.components.trainer.spec import Settings

if TYPE_CHECKING:
    from strategos.components.trainer.distribution.strategy import Choice

NOT_ON_SERVERS = {
    "accumulate_steps": (
        "replicas that take a step each for itself compute on small batches anyway",
        "multi_worker_mirrored",
    ),
    "phases": (
        "the workers of parameter servers keep the step of one model and optimizer, "
        "and of phases each has its own",
        "multi_worker_mirrored",
    ),
    "jit_compile": (
        "XLA cannot read variables of another process, and parameter servers are that",
        "one_device",
    ),
    "deterministic": (
        "parameter servers take gradients in the order in which they come, so no two "
        "runs are equal",
        "multi_worker_mirrored",
    ),
    "bucket_by": (
        "workers of parameter servers read the examples one by one, and do not know "
        "their lengths ahead",
        "multi_worker_mirrored",
    ),
    "mixed_precision": (
        "variables on parameter servers are not cast to another precision",
        "multi_worker_mirrored",
    ),
}
"""Settings that parameter servers cannot do: why, and a strategy that can."""


def check_settings(choice: Choice, settings: Settings) -> None:
    """Rejects settings that the chosen strategy cannot do.

    Args:
      choice: The strategy, with its devices.
      settings: The settings of the run.

    Raises:
      UserError: The strategy cannot do one of the settings, e.g. `jit_compile` on
        parameter servers.
    """
    exchanging = choice.name in ("mirrored", "multi_worker_mirrored")
    on_cpus = choice.kind == "CPU" and choice.replicas != 1
    if settings.jit_compile and exchanging and on_cpus:
        raise UserError(
            f"XLA cannot exchange gradients between CPUs, which {choice.name!r} does "
            f"here ({choice.reason})",
            key="trainer.jit_compile",
            remedy="Remove it, or use `strategy: one_device` or `central_storage`.",
        )
    for key, (why, instead) in NOT_ON_SERVERS.items():
        if getattr(settings, key) and not choice.is_synchronous:
            remedy = f"Remove it, or use `strategy: {instead}`."
            raise UserError(why, key=f"trainer.{key}", remedy=remedy)
    if settings.accumulate_steps and choice.name == "central_storage":
        raise UserError(
            "central storage exchanges metrics between its devices in each micro-batch",
            key="trainer.accumulate_steps",
            remedy="Remove it, or use `strategy: mirrored`.",
        )
    if settings.accumulate_steps and choice.kind == "TPU":
        raise UserError(
            "a TPU takes batches of one size only",
            key="trainer.accumulate_steps",
            remedy="Remove it, and choose a smaller `batch_size` or more replicas.",
        )
    if settings.mixed_precision == "float16" and choice.kind == "TPU":
        raise UserError(
            "a TPU computes in bfloat16, not in float16",
            key="trainer.mixed_precision",
            remedy="Use `bfloat16`.",
        )

"""Inputs of a training on this machine: those that TensorFlow itself opens."""

from __future__ import annotations

from collections.abc import Callable

from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import modules


def local(spec: WorkerSpec, at: Callable[[str], str]) -> WorkerSpec:
    """The training with inputs on this machine; examples stay in their object store.

    The trainer streams examples. TensorFlow itself opens them in a stock `run_fn`, and
    in the datasets of a cluster with parameter servers.

    Args:
      spec: The training.
      at: Returns where the file or folder at a path or URL is on this machine.
    """
    opened = (
        spec.distribution.get("strategy") == "parameter_server"
        or ClusterSpec.from_environment().count("ps")
        or modules.takes_fn_args(spec.folder, spec.module)
    )
    return spec.with_inputs(at, examples=bool(opened))

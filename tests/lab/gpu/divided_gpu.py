"""Trains as `trainer.run.worker` does, on one GPU that counts as two.

Strategos itself never divides a GPU: with one, two devices or workers are rejected.
Here one process has two logical GPUs, and two workers share the GPU.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.trainer.distribution import devices, environment
from strategos.components.trainer.run import worker
from strategos.components.worker_process import serve

MEGABYTES = 8192  # of a logical GPU

_visible_gpus, _configure = environment.visible_gpus, devices.configure


def visible_gpus(*arguments: Any, **named: Any) -> tuple[str, ...]:
    """The names of the GPUs, each twice."""
    return 2 * _visible_gpus(*arguments, **named)


def configure(name: str, kind: str, count: int) -> list[str]:
    """Divides the GPU where one process wants two."""
    if kind != "GPU" or count == 1:
        return _configure(name, kind, count)
    parts = [tf.config.LogicalDeviceConfiguration(MEGABYTES) for _ in range(count)]
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, parts)
    return [f"/gpu:{index}" for index in range(count)]


if __name__ == "__main__":
    environment.visible_gpus, devices.configure = visible_gpus, configure
    serve(worker.work)

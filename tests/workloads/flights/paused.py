"""The flights' training, which waits before its second epoch until a file exists."""

import os
import time
from pathlib import Path

import tensorflow as tf
from model import build_model

__all__ = ["build_model", "callbacks"]


class Pause(tf.keras.callbacks.Callback):
    """Waits for a file /tmp/go of its pod; leaves a file /tmp/paused-PID before."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            Path(f"/tmp/paused-{os.uname().nodename}-{os.getpid()}").touch()
        while epoch == 1 and not Path("/tmp/go").exists():
            time.sleep(0.05)


def callbacks(context):
    return [Pause()]

"""A training that waits after its second epoch until a file `go` exists."""

import os
import time
from pathlib import Path

import tensorflow as tf
from model import build_model

__all__ = ["build_model", "callbacks"]


class Pause(tf.keras.callbacks.Callback):
    """Waits after the second epoch; leaves a file `paused-PID` before."""

    def __init__(self, marks):
        super().__init__()
        self.marks = Path(marks)

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            (self.marks / f"paused-{os.uname().nodename}-{os.getpid()}").touch()
        while epoch == 1 and not (self.marks / "go").exists():
            time.sleep(0.05)


def callbacks(context):
    return [Pause(context.hyperparameters["marks"])]

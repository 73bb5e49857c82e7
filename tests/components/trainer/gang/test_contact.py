"""Errors if the other task of an operation does not answer."""

from __future__ import annotations

import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.gang import contact
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.model.blame import blamed
from strategos.components.trainer.operation import Operation

MODULE = """
import tensorflow as tf
from model import build_model

class Away(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

def callbacks(context):
    return [Away()]
"""


@pytest.mark.long
def test_a_network_failure_after_the_last_restart_is_not_blamed_on_the_module(
    workload, make_spec
):
    workload.write_module("away", MODULE)
    with pytest.raises(UserError) as caught:
        launch(make_spec(module="away"), Operation(max_restarts=1))
    told = str(caught.value)
    assert told.startswith("training fails: another task or a service on the network")
    assert "(UnavailableError: Connection reset by peer)" in told
    assert "The gang was restarted 1 time without" in told


@pytest.mark.parametrize("wrapped", [False, True])
def test_only_the_users_own_errors_are_named_with_the_module(tmp_path, wrapped):
    file = str(tmp_path / "model.py")
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    with pytest.raises(UserError) as caught, blamed("fails", file, str(tmp_path)):
        if wrapped:
            raise ValueError("it went wrong") from lost
        raise lost
    assert "did not answer" in str(caught.value) and file not in str(caught.value)
    with (
        pytest.raises(UserError, match=r"model\.py: ValueError: wrong shape"),
        blamed("fails", file, str(tmp_path)),
    ):
        raise ValueError("wrong shape")


def test_a_cancelled_operation_without_other_tasks_is_no_loss(tmp_path):
    """An error of one of several devices, which TensorFlow reports for the others."""
    file = str(tmp_path / "model.py")
    cancelled = tf.errors.CancelledError(None, None, "RecvAsync is cancelled.")
    with (
        pytest.raises(UserError, match="an operation fails on one of") as caught,
        blamed("training fails", file, str(tmp_path), in_one_process=True),
    ):
        raise cancelled
    assert not contact.is_loss(caught.value)
    with (
        pytest.raises(UserError, match="did not answer") as caught,
        blamed("training fails", file, str(tmp_path)),
    ):
        raise cancelled
    assert contact.is_loss(caught.value)

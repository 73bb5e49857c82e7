"""Turns exceptions of a training into errors that name the user's file and line."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator

import tensorflow as tf

from strategos.components.errors import UserError, first_line
from strategos.components.trainer.gang import contact, preemption
from strategos.components.user_code.user_errors import explain, is_own, location

_OF_MODEL_OR_DATA = (ValueError, TypeError, tf.errors.OpError)


@contextlib.contextmanager
def blamed(
    what: str, file: str, folder: str, *, in_one_process: bool = False
) -> Iterator[None]:
    """Turns an exception into a UserError with the user's file and line.

    If another process is lost, the message does not blame the user's code.

    Args:
      what: The failure, for the message, e.g. "training fails".
      file: The user's module.
      folder: Folder of the user's code.
      in_one_process: Whether the operations run on several devices of this process, and
        in no other.

    Raises:
      UserError: The body failed in the user's code, by the model or data, or because
        another process did not answer.
    """
    try:
        yield
    except (UserError, preemption.Preempted):
        raise
    except (Exception, SystemExit) as error:
        where = location(error, folder)
        if isinstance(error, SystemExit) and not _is_of(error, folder):
            raise  # of a signal
        if in_one_process and isinstance(error, tf.errors.CancelledError):
            logging.exception("an operation was cancelled")
            raise _cancelled(what) from None  # its cause would count as a loss
        if contact.is_loss(error):
            raise _unanswered(what, error, where) from error
        if not where and not isinstance(error, _OF_MODEL_OR_DATA):
            raise  # an internal error
        text = explain(error, folder)
        if not where:
            text = f"{file}: {text}"
        raise UserError(f"{what}: {text}") from error


def _is_of(error: BaseException, folder: str) -> bool:
    """Whether the user's code itself raised an error."""
    return is_own(traceback.extract_tb(error.__traceback__)[-1].filename, folder)


def _cancelled(what: str) -> UserError:
    """An operation failed on one of several devices: which one is not reported."""
    return UserError(
        f"{what}: an operation fails on one of the devices, and TensorFlow reports "
        "only that the operations of the others were cancelled",
        remedy="Train on one device, which reports the error itself: "
        "`--set 'trainer.distribution={strategy: one_device}'`.",
    )


def _unanswered(what: str, error: BaseException, where: str | None) -> UserError:
    text = first_line(error).rstrip(".") or "no message"
    return UserError(
        f"{what}: another task or a service on the network did not answer "
        f"({type(error).__name__}: {text})"
        + (f", at {where}" if where else "")
        + ". Check the network and that the other tasks and services are running."
    )

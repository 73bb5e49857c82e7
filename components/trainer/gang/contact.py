"""Recognises errors of a lost connection to another process."""

from __future__ import annotations

_LOSSES = {
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
}


def is_loss(error: BaseException | None) -> bool:
    """Whether an operation failed because another process is lost or does not answer.

    True also if the cause of `error` is such an error. Compares class names, so that
    TensorFlow need not be imported.

    Args:
      error: The exception, or None.
    """
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & _LOSSES:
            return True
        if "InternalError" in names and "ollective" in str(error):
            return True
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return False

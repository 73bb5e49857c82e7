"""Errors of operations whose other side is gone or does not answer."""

from __future__ import annotations

_LOSSES = {
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
}


def is_loss(error: BaseException | None) -> bool:
    """Whether an operation failed because another process is gone or does not answer.

    Also where such an error is the cause of the one raised. Errors are known by the
    names of their classes: TensorFlow is not imported.
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

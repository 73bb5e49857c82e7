"""Errors whose message is all that a user needs: what, where and what to do."""

from __future__ import annotations


class UserError(Exception):
    """A problem that its reader can solve; shown without a traceback.

    The message names the file, key or row, says what was expected and what to do.
    """

    exit_code = 1


class BadInputError(UserError):
    """Refused before any node ran: a bad setting, a missing file."""

    exit_code = 2


class GateStoppedError(UserError):
    """A gate stopped the run: the data or the model did not pass its checks."""

    exit_code = 3

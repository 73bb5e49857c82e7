"""Causes of errors of `requests`, in words."""

from __future__ import annotations

import requests
from urllib3 import exceptions


def was_connected(error: requests.RequestException) -> bool:
    """Whether the request may have reached the service."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return False
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return not isinstance(reason, exceptions.NewConnectionError)


def cause(error: Exception) -> str:
    """The network's error message, without the names of Python's objects."""
    error = getattr(error, "cause", None) or error  # the last one, of several tries
    reason = error.args[0] if error.args else error
    text = str(getattr(reason, "reason", reason))
    return text.rpartition(">: ")[2].rpartition("): ")[2]

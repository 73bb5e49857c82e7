"""Retries of requests: only after errors that can pass, e.g. 503."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from strategos.components.errors import UserError
from strategos.pipeline.remote.service import TransientError, UnsentError

REQUEST_SECONDS = 60.0
"""Time from the first failure after which a single request is given up."""
WATCH_SECONDS = 900.0
"""The same for a run that is watched: a service may be restarted meanwhile."""
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # Seconds; each wait doubles the last one.

_T = TypeVar("_T")


class Retries:
    """Sends requests again after errors that can pass.

    | error | reads, terminate, delete | submit, create |
    |---|---|---|
    | refused connection, unknown host, 429 | again | again: nothing was created |
    | time-out, broken connection, 500, 502, 503, 504 | again | not: it may exist |
    | 400, 401, 403, 404, 409, another answer | not | not |

    Args:
      seconds: Time from the first of several failures in a row to the last request.
      clock: Returns monotonic seconds.
      sleep: Waits for so many seconds.
      on_failure: Called with each error after which the request is sent again.
    """

    def __init__(
        self,
        seconds: float = REQUEST_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_failure: Callable[[UserError], None] = lambda error: None,
    ):
        self._seconds, self._clock, self._sleep = seconds, clock, sleep
        self._on_failure = on_failure

    def call(self, request: Callable[[], _T], *, creates: bool = False) -> _T:
        """Calls `request`, again after passing errors, and returns its result.

        Args:
          request: Sends the request; may be called several times.
          creates: Whether the request does harm if the service executes it twice, e.g.
            starts two runs. It is then repeated only after an UnsentError.

        Raises:
          UserError: The last error.
        """
        passing = UnsentError if creates else TransientError
        wait, give_up = _FIRST_WAIT, None
        while True:
            try:
                return request()
            except passing as error:
                now = self._clock()
                give_up = now + self._seconds if give_up is None else give_up
                if now + wait > give_up:
                    raise
                self._on_failure(error)
            self._sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

"""Failed requests to Google's services, such as Vertex AI, in one form."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator

from strategos.components.errors import first_line

LOG_IN = (
    "Set GOOGLE_APPLICATION_CREDENTIALS, or call `gcloud auth application-default "
    "login`."
)
REMEDIES: dict[int | str, str] = {
    400: "Correct what the message names.",
    401: LOG_IN,
    "log_in": LOG_IN,
    403: "Give the account the role `roles/aiplatform.user` in the project, and enable "
    "the Vertex AI API.",
    409: "Another request made or changes it at this moment: try again.",
    429: "The quota is used up: try again later, or have it raised.",
}
"""Remedies by `ApiFailure.reason`; services add those that depend on settings."""


@dataclasses.dataclass(frozen=True)
class ApiFailure:
    """Why a request failed.

    Attributes:
      reason: The status of the answer, e.g. 403. Without an answer "unsent", or
        "unanswered" or "late" if the service may have carried out the request;
        "garbled" if another service answers; "log_in" if credentials are missing or
        rejected.
      what: Reason in words, e.g. "it answers 403: no access to the project".
    """

    reason: int | str
    what: str


@contextlib.contextmanager
def failures(converted: Callable[[ApiFailure], Exception | None]) -> Iterator[None]:
    """Converts errors of Google's clients inside the block.

    Args:
      converted: Returns the error to raise instead; None for none.
    """
    try:
        yield
    except Exception as error:
        failure = _failure(error)
        if failure is None:
            raise
        instead = converted(failure)
        if instead is not None:
            raise instead from error


def one_line(text: str | None) -> str:
    """A service's message as one line, without the URL that the client adds."""
    joined = " ".join(str(text or "").split())
    return re.sub(r"^[A-Z]+ https?://\S+: ", "", joined)[:500]


def _failure(error: Exception) -> ApiFailure | None:
    """The failure of a request; None for other errors."""
    import requests
    from google.api_core import exceptions
    from google.auth import exceptions as auth
    from google.protobuf.json_format import ParseError

    from strategos.components.services import network

    late = (
        requests.ReadTimeout,
        exceptions.RetryError,
        concurrent.futures.TimeoutError,
    )
    if isinstance(error, exceptions.GoogleAPICallError):
        code = int(error.code or 500)
        return ApiFailure(code, f"it answers {code}: {one_line(error.message)}")
    if isinstance(error, auth.TransportError):
        what = f"the credentials cannot be renewed: {network.cause(error)}"
        return ApiFailure("unsent", what)
    if isinstance(error, auth.GoogleAuthError):
        return ApiFailure("log_in", first_line(str(error)))
    if isinstance(error, late):
        return ApiFailure("late", f"it took too long: {network.cause(error)}")
    if isinstance(error, (ParseError, requests.JSONDecodeError)):
        return ApiFailure("garbled", "its answer is not one of this API")
    if isinstance(error, requests.RequestException):
        sent = "unanswered" if network.was_connected(error) else "unsent"
        return ApiFailure(sent, f"it cannot be reached: {network.cause(error)}")
    return None

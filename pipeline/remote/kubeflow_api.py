"""Requests to the REST API of Kubeflow Pipelines; failures become errors for users.

Sent by `requests`: `kfp.Client` limits no request in time, and the names of its
generated API differ between the two stacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import requests

from strategos.components.errors import BadInputError, UserError
from strategos.components.services import network
from strategos.pipeline.config.sections import Config
from strategos.pipeline.remote.service import TransientError, UnsentError, kind_of

Json = dict[str, Any]

TOKEN_VARIABLE = "STRATEGOS_KFP_TOKEN"
"""The variable with a bearer token for the API."""
TOKEN_FILE_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
"""KFP's own variable with the file of a token, which Kubernetes renews."""
_TIMEOUTS = (10.0, 60.0)  # Seconds: to connect, to wait for data.
_REMEDIES = {
    400: "Correct what the message names.",
    401: f"Set {TOKEN_VARIABLE} to a token, or {TOKEN_FILE_VARIABLE} to the file of "
    "one.",
    403: "Give the account of the token the right to create and read runs in the "
    "namespace (`kubeflow.namespace`).",
    404: "Check the id, and `kubeflow.endpoint`.",
    409: "Another request made or changes it at this moment: try again.",
    429: "Try again later.",
}
_BROKEN = "See the logs of the deployment ml-pipeline; try again."
_UNREACHABLE = "Check `kubeflow.endpoint`, the network or the port-forward; try again."


class Api:
    """The API at a URL.

    Args:
      config: The effective settings, for the places of errors.
      url: The URL, without `/apis/…`.
      token: A bearer token; "" for none.
      token_file: A file with one, read for each request if it exists.
      timeouts: Seconds to connect, and to wait for data.
    """

    def __init__(
        self,
        config: Config,
        url: str,
        *,
        token: str = "",
        token_file: str = "",
        timeouts: tuple[float, float] = _TIMEOUTS,
    ):
        self.url = url
        self._config, self._timeouts = config, timeouts
        self._token, self._token_file = token, token_file

    def ask(
        self, method: str, path: str, body: Json | None = None, query: Any = None
    ) -> Json:
        """Sends one request to the API v2beta1; returns the answer's JSON object.

        Args:
          method: The HTTP method, e.g. `GET`.
          path: The part of the URL after `/apis/v2beta1`, e.g. `/runs`.
          body: The request's JSON object.
          query: Parameters of the URL.

        Raises:
          BadInputError: The URL leads to no API of KFP.
          UserError: The request failed; of the class that `kind_of` determines.
        """
        response = self.send(method, f"/apis/v2beta1{path}", body, query)
        if not response.ok or response.is_redirect:
            raise self._rejected(response)
        try:
            answer = response.json() if response.content else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            kind = response.headers.get("Content-Type") or "no JSON"
            raise self.not_kfp(f"it answers with {kind}")
        return answer

    def send(
        self, method: str, path: str, body: Json | None = None, query: Any = None
    ) -> requests.Response:
        """Sends one request; returns the answer, whatever its status.

        Raises:
          UserError: There is no answer.
        """
        try:
            return requests.request(
                method,
                self.url + path,
                json=body,
                params=query,
                headers=self._headers(),
                timeout=self._timeouts,
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            remedy = "Set REQUESTS_CA_BUNDLE to the file of its authority."
            raise self._failure(
                f"its certificate is rejected: {network.cause(error)}", remedy
            ) from error
        except requests.exceptions.ReadTimeout as error:
            what = f"it took longer than {self._timeouts[1]:g} s to answer"
            raise self._failure(what, _UNREACHABLE, TransientError) from error
        except requests.ConnectionError as error:
            kind = TransientError if network.was_connected(error) else UnsentError
            what = f"it cannot be reached: {network.cause(error)}"
            raise self._failure(what, _UNREACHABLE, kind) from error
        except requests.RequestException as error:
            raise self._failure(
                network.cause(error), _UNREACHABLE, TransientError
            ) from error

    def not_kfp(self, why: str) -> UserError:
        """The error for a URL that leads to no API of KFP."""
        return BadInputError(
            f"this is not the API of Kubeflow Pipelines 2: {why}",
            key="kubeflow.endpoint",
            place=self._config.where("kubeflow.endpoint"),
            received=self.url,
            remedy="Name the URL under which /apis/v2beta1/healthz answers, such as "
            "http://localhost:8888 for a port-forward of service/ml-pipeline.",
        )

    def _headers(self) -> dict[str, str]:
        token = self._token
        if not token and self._token_file and Path(self._token_file).exists():
            token = Path(self._token_file).read_text().strip()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _rejected(self, response: requests.Response) -> UserError:
        code = response.status_code
        if response.is_redirect:
            return self._failure("it asks to log in elsewhere", _REMEDIES[401])
        what = f"it answers {code}: {_said(response)}"
        return self._failure(what, _REMEDIES.get(code, _BROKEN), kind_of(code))

    def _failure(
        self, what: str, remedy: str, kind: type[UserError] = UserError
    ) -> UserError:
        return kind(f"Kubeflow Pipelines at {self.url}: {what}", remedy=remedy)


def _said(response: requests.Response) -> str:
    """The message of an answer, as one line."""
    try:
        body = response.json()
        text = body.get("message") or body.get("error_message") or ""
    except (ValueError, AttributeError):
        text = response.reason or ""
    return " ".join(str(text).split())[:300]

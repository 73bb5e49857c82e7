"""Output of the tasks of a job of Kubernetes, from the logs of its pods."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import CONTAINER
from strategos.components.trainer.launchers.jobs.scheduler import UnreachableError

_ASK_SECONDS = 2.0
_PATH = "/api/v1/namespaces/{namespace}/pods/{name}/log"
_SECONDS = (5.0, 10.0)  # to connect, and to answer
_DENIED = (401, 403)
_DENIALS = 10  # one after the other: an API server that has just started denies all
# A time without fractions, its zone, and a line of output.
_LINE = re.compile(r"(\S{19})(?:\.\d+)?(Z|[+-]\d\d:\d\d) (.*)")


class _DeniedError(Exception):
    """Kubernetes' API denies a request; the status."""


class PodLogs:
    """The logs of the pods of one job, as `Logs`.

    Each request asks for all lines since the second of the newest known line, and known
    lines are dropped from the answer. So a connection that breaks loses none, and none
    comes twice. A pod that is gone has no log any more; another may be in its place.

    Args:
      api: Kubernetes' client, a `kubernetes.client.ApiClient`.
      namespace: Namespace of the pods.
      selector: Their label, for messages.
      pod_of: Returns the name of a task's pod, or "" as long as it is unknown.
      clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        api: Any,
        namespace: str,
        selector: str,
        pod_of: Callable[[Task], str],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._api, self._namespace, self._selector = api, namespace, selector
        self._pod_of, self._pods = pod_of, dict[Task, str]()
        self._clock, self._asked = clock, -_ASK_SECONDS
        self._since: dict[str, str] = {}
        self._known: dict[str, set[str]] = {}
        self._denials = 0

    def new_lines(
        self, tasks: Sequence[Task], *, at_once: bool = False
    ) -> Iterator[tuple[Task | None, str]]:
        """See `Logs`."""
        from urllib3.exceptions import HTTPError

        now = self._clock()
        is_late = at_once or now - self._asked >= _ASK_SECONDS
        if self._denials == _DENIALS or not is_late:
            return
        self._asked = now
        try:
            for task in tasks:
                pod = self._pods.pop(task, "") or self._pod_of(task)
                text = self._ask(pod)
                if text is not None:
                    self._pods[task] = pod
                for line in self._new_lines(pod, text or ""):
                    yield task, line
            self._denials = 0
        except (HTTPError, UnreachableError):
            pass  # asked again at the next look
        except _DeniedError as error:
            self._denials += 1
            if self._denials == _DENIALS:
                watchdog.log(self._without_logs(error))

    def _new_lines(self, pod: str, text: str) -> list[str]:
        """The lines of a pod's log that are new since the last request."""
        matches = [
            (line, match)
            for line in text.split("\n")
            if (match := _LINE.fullmatch(line))
        ]
        known = self._known.get(pod, set())
        new = [match[3] for line, match in matches if line not in known]
        if new:
            newest = matches[-1][1]
            self._since[pod] = newest[1] + newest[2]
            self._known[pod] = {line for line, m in matches if m[1] == newest[1]}
        return new

    def _ask(self, pod: str) -> str | None:
        """The log of a pod; None without one, or without an answer that counts.

        Raises:
          HTTPError: No answer.
          _DeniedError: The launcher may not read logs.
        """
        from kubernetes.client import ApiException

        if not pod:
            return None
        query = [("container", CONTAINER), ("timestamps", "true")]
        if pod in self._since:
            query.append(("sinceTime", self._since[pod]))
        try:
            # `read_namespaced_pod_log` knows no `sinceTime`, and decodes strictly.
            response, *_ = self._api.call_api(
                _PATH,
                "GET",
                {"namespace": self._namespace, "name": pod},
                query,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=_SECONDS,
            )
            return response.data.decode(errors="replace")
        except ApiException as error:
            if error.status in _DENIED:
                raise _DeniedError(error.status) from None
            return None

    def _without_logs(self, error: _DeniedError) -> str:
        return (
            f"Kubernetes answers {error}: the output of the tasks is not shown (the "
            "role in kubeflow/manifests/training-jobs.yaml allows it). See kubectl "
            f"logs --namespace {self._namespace} --selector {self._selector}"
        )

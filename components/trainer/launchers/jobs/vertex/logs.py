"""Output of the tasks of a custom job, from Cloud Logging."""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.gang import watchdog
from strategos.components.trainer.launchers.jobs.vertex.custom_job import replica

URL = "https://logging.googleapis.com/v2/entries:list"
_ASK_SECONDS = 5.0  # a project may ask 60 times a minute
_LATE_SECONDS = 60.0  # in which entries may arrive after later ones
_SECONDS = (5.0, 30.0)  # to connect, and to answer
_PAGE, _KNOWN = 1000, 100_000
_START = "1970-01-01T00:00:00Z"


class Logs:
    """The log of one job, as `Logs` of `jobs/output.py`.

    Args:
      session: Sends authorized requests, as `requests.Session`.
      project: The project.
      job_id: Number of the job.
      clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        session: Any,
        project: str,
        job_id: str,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._session, self._project, self._job_id = session, project, job_id
        self._clock, self._asked = clock, -_ASK_SECONDS
        self._newest = _START
        self._seen: deque[str] = deque(maxlen=_KNOWN)
        self._is_allowed = True
        self.last_of_service = ""

    def new_lines(
        self, tasks: Sequence[Task], *, at_once: bool = False
    ) -> Iterator[tuple[Task | None, str]]:
        """See `Logs` of `jobs/output.py`."""
        now = self._clock()
        if not self._is_allowed or (now - self._asked < _ASK_SECONDS and not at_once):
            return
        self._asked = now
        replicas = {replica(task): task for task in tasks}
        for entry in self._new_entries():
            name = entry.get("resource", {}).get("labels", {}).get("task_name", "")
            text = _text(entry)
            task = replicas.get(name)
            if task is None and text:
                self.last_of_service = text
            for line in text.splitlines():
                yield task, line

    def _new_entries(self) -> list[Mapping[str, Any]]:
        entries: list[Mapping[str, Any]] = []
        page: str | None = ""
        while page is not None:
            answer = self._ask(page)
            entries += answer.get("entries", ())
            page = answer.get("nextPageToken")
        known = set(self._seen)
        new = [each for each in entries if each["insertId"] not in known]
        self._seen.extend(each["insertId"] for each in new)
        self._newest = max([self._newest, *(each["timestamp"] for each in new)])
        return new

    def _ask(self, page: str) -> Mapping[str, Any]:
        import requests

        body = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": f'resource.type="ml_job" resource.labels.job_id="{self._job_id}" '
            f'timestamp>="{_before(self._newest)}"',
            "orderBy": "timestamp asc",
            "pageSize": _PAGE,
            **({"pageToken": page} if page else {}),
        }
        try:
            answer = self._session.post(URL, json=body, timeout=_SECONDS)
            if answer.status_code in (401, 403, 404):
                self._is_allowed = False
                watchdog.log(self._refused(answer.status_code))
            return answer.json() if answer.ok else {}
        except (requests.RequestException, ValueError):
            return {}  # asked again at the next look

    def _refused(self, status: int) -> str:
        return (
            f"Cloud Logging answers {status}: the output of the tasks is not shown "
            "(roles/logging.viewer allows it). See gcloud logging read "
            f"'resource.labels.job_id=\"{self._job_id}\"' --project {self._project}"
        )


def _before(timestamp: str) -> str:
    """A timestamp somewhat earlier; entries may arrive out of order."""
    if timestamp == _START:
        return timestamp
    seconds = timestamp.partition(".")[0].rstrip("Z")
    when = datetime.datetime.fromisoformat(seconds)
    return f"{(when - datetime.timedelta(seconds=_LATE_SECONDS)).isoformat()}Z"


def _text(entry: Mapping[str, Any]) -> str:
    payload = entry.get("jsonPayload", {})
    return str(entry.get("textPayload") or payload.get("message") or "").rstrip()

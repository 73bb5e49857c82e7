"""The REST API of a Flink master (its JobManager)."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from strategos.components.errors import BadInputError
from strategos.components.shards.flink import jars
from strategos.components.wording import counted

KEY = "run.engine.options.master"
"""The setting that names a master."""

# A JobManager that has few cores, or collects garbage, was seen to take 5 s to answer.
_SECONDS = 20.0
# A master is a neighbour: never through the proxy that the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_MIN_BUFFERS = "taskmanager.network.sort-shuffle.min-buffers"
_STOCK_BUFFERS, _BUFFER_BYTES = 512, 1 << 15
# Of a cluster that a run starts: 64. With Flink's own settings: 8, and ten restarts.
_SHUFFLES = 32
ENDED = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")
"""States of jobs that have ended."""


class MasterError(Exception):
    """A Flink master did not answer, or not as one answers."""


class Master:
    """A Flink master by its address.

    Attributes:
      address: `host:port` of the REST API.
    """

    def __init__(self, address: str):
        self.address = address

    def get(self, path: str) -> Any:
        """The answer to `GET path`, as JSON.

        Args:
          path: Path of the request, e.g. `/jobs`.

        Raises:
          MasterError: No answer, or one that is not Flink's.
        """
        return self._call("GET", path)

    def check(self, slots: int) -> int:
        """Checks that jobs of this engine can run there.

        Args:
          slots: Task slots that a job needs.

        Returns:
          Task slots of a TaskManager, rounded up where they differ.

        Raises:
          BadInputError: It does not answer, is no Flink or another release of Flink,
            or has fewer slots.
        """
        try:
            about = self.get("/overview")
            release = about["flink-version"]
            total, free = about["slots-total"], about["slots-available"]
            hosts = about["taskmanagers"]
        except (MasterError, KeyError, TypeError) as error:
            why = str(error) if isinstance(error, MasterError) else "it is not Flink"
            raise self._unfit(
                f"no Flink master answers there: {why}",
                remedy="Name the host and the port of the JobManager's REST API "
                "(`rest.port`, 8081 by default).",
            ) from None
        if not release.startswith(f"{jars.FLINK}."):
            raise self._unfit(
                f"Flink {release} runs there, and the job server works with Flink "
                f"{jars.FLINK}"
            )
        if total < slots:
            raise self._unfit(
                f"the cluster has {total} task slots, and run.engine.workers needs "
                f"{slots}",
                remedy="Start more TaskManagers, or set run.engine.workers to "
                f"{total} or fewer."
                if total
                else "Start TaskManagers.",
            )
        if free < slots:
            raise self._unfit(
                f"{free} of {total} task slots are free, and run.engine.workers needs "
                f"{slots}",
                remedy="Wait for the jobs of others, or start more TaskManagers.",
            )
        self._check_shuffles()
        return -(-total // hosts)

    def _check_shuffles(self) -> None:
        """Rejects a cluster with too little network memory for Transform.

        Each stage of Transform holds `_MIN_BUFFERS` buffers for each task that
        shuffles: without them, Flink restarts the job again and again.
        """
        try:
            entries = self.get("/jobmanager/config")
            settings = {each["key"]: each["value"] for each in entries}
            buffers = int(settings.get(_MIN_BUFFERS, _STOCK_BUFFERS))
            buffers_of = [self._buffers(each) for each in self._task_managers()]
        except (MasterError, KeyError, TypeError, ValueError):
            return  # as behind a proxy that hides them
        shuffles = min(buffers_of, default=_SHUFFLES * buffers) // buffers
        if shuffles < _SHUFFLES:
            raise self._unfit(
                f"its network memory holds {counted(shuffles, 'shuffle')} at a time "
                f"for each task slot, too few for Transform ({_SHUFFLES} or more)",
                remedy=f"Set `{_MIN_BUFFERS}: 64` in the settings of its JobManager "
                f"and TaskManagers (received {buffers}), or raise "
                "taskmanager.memory.network.min and max, and restart them.",
            )

    def _task_managers(self) -> list[dict[str, Any]]:
        return self.get("/taskmanagers")["taskmanagers"]

    def _buffers(self, task_manager: dict[str, Any]) -> int:
        """Network buffers for each task slot of a TaskManager."""
        about = self.get(f"/taskmanagers/{task_manager['id']}")
        total = about["memoryConfiguration"]["networkMemory"] // _BUFFER_BYTES
        return total // task_manager["slotsNumber"]

    def job_named(self, name: str) -> str | None:
        """The id of the job with a name; None if there is none.

        Args:
          name: Unique among the jobs.

        Raises:
          MasterError: No answer.
        """
        jobs = self.get("/jobs/overview")["jobs"]
        return next((job["jid"] for job in jobs if job["name"] == name), None)

    def cancel(self, job: str) -> bool:
        """Cancels a job, unless it has ended.

        Args:
          job: The job's id.

        Returns:
          Whether the job has ended; a cancelled one takes a moment.

        Raises:
          MasterError: No answer, or the job is unknown.
        """
        # Of the job's details, a master remembers an answer for three seconds.
        if self.get(f"/jobs/{job}/status")["status"] in ENDED:
            return True
        self._call("PATCH", f"/jobs/{job}?mode=cancel")
        return False

    def _call(self, method: str, path: str) -> Any:
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, method=method)
        try:
            with _OPENER.open(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise MasterError(f"{method} {path}: {error}") from error
        except urllib.error.URLError as error:
            raise MasterError(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise MasterError(str(error) or type(error).__name__) from error
        except ValueError as error:
            raise MasterError("it is not Flink") from error

    def _unfit(self, message: str, remedy: str = "") -> BadInputError:
        return BadInputError(message, key=KEY, received=self.address, remedy=remedy)

"""Trains as a custom job of Vertex AI, with a container for each task.

`run.root` is in Cloud Storage, where launcher and containers exchange the files of the
training. The job is found again by its labels, so a launcher that is started
again joins it.
Requests are repeated without a connection and after 429, 500 and above. All other
errors end the training with the words of the service: 400, 401, 403, 404. So does a 429
about a quota for machines, which does not pass in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from strategos.components.errors import UserError, first_line
from strategos.components.services import google_api
from strategos.components.trainer.launchers.jobs import staging, training
from strategos.components.trainer.launchers.jobs.attempt import Attempt, RemoteAttempt
from strategos.components.trainer.launchers.jobs.output import Output, ServiceOutput
from strategos.components.trainer.launchers.jobs.scheduler import (
    Job,
    UnreachableError,
    phase,
)
from strategos.components.trainer.launchers.jobs.vertex import custom_job
from strategos.components.trainer.launchers.jobs.vertex.custom_job import KEY
from strategos.components.trainer.launchers.jobs.vertex.logs import Logs
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import fingerprint

_SECONDS = 60.0  # for a request
_ABANDONED_SECONDS = 600.0
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PASSING, _TOO_MANY, _SERVER = (408, 429), 429, 500
_QUOTA = "quota metric"
_WAITING = ("STATE_UNSPECIFIED", "QUEUED", "PENDING", "PAUSED")
_RUNNING = ("RUNNING", "CANCELLING", "UPDATING")
_CANCELLED = ("CANCELLING", "CANCELLED")
_REMEDIES = {
    **google_api.REMEDIES,
    400: f"Correct what the message names, in {KEY} or in `vertex`.",
    403: "Give the account the role `roles/aiplatform.user` in `vertex.project` and "
    "`roles/iam.serviceAccountUser` on `vertex.service_account`; enable the Vertex AI "
    "API.",
    404: "Check `vertex.project` and `vertex.region`.",
    429: f"Have the quota raised, or ask for less in {KEY}; each `vertex.region` has "
    "a quota of its own.",
}

_T = TypeVar("_T")


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Creates a custom job, or joins the job that an earlier launcher left.

    Args:
      spec: The training; its examples or checkpoints are in an object store.
      operation: Time-outs and restarts; its `job` has the settings for the job.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: Vertex AI rejects the job, it cannot start, or the user's code,
        settings or data cannot be trained with.
      WorkerError: The job failed by an internal error.
    """
    settings = operation.job
    code = fingerprint.fingerprint(spec.folder, spec.module, files=spec.files)
    jobs = CustomJobs(settings, code)

    def train(staged: WorkerSpec) -> dict[str, Any]:
        inside = staging.in_image(staged, settings, "vertex.modules")
        return training.launch(inside, operation, jobs)

    return staging.trained(spec, settings, KEY, train)


def check(root: str, settings: Mapping[str, Any]) -> None:
    """Rejects a root that the containers of a custom job cannot use.

    Args:
      root: URL of the root.

    Raises:
      UserError: It is not in Cloud Storage.
    """
    if root.startswith("gs://"):
        return
    raise UserError(
        f"the custom job's containers cannot access {root}",
        key="run.root",
        expected="gs://BUCKET/FOLDER",
        remedy="Set `run.root` to a folder in Cloud Storage; or run the whole pipeline "
        "on Vertex AI: `strategos run --runner vertex`.",
    )


LAUNCHER = Launcher(
    "vertex",
    "creates a custom job of Vertex AI",
    launch,
    check=check,
    services=("vertex",),
    fixed_size="a job of Vertex AI that loses a replica ends, and the next one needs "
    "as many",
)


class CustomJobs:
    """Custom jobs, by Vertex AI's API with Google's default credentials.

    Args:
      settings: `trainer.distribution.vertex` with its values from `vertex`, times in
        seconds.
      code: Fingerprint of the user's code.
    """

    name = "Vertex AI"
    remedy = f"Check {KEY}, `vertex.region` and the project's quotas."

    def __init__(self, settings: Mapping[str, Any], code: str):
        self._settings, self._code = settings, code
        self.pending_timeout = settings["pending_timeout"]
        # Vertex AI sets this variable in all of its containers. A step is started again
        # only as long as its pipeline lasts; elsewhere a launcher may come after days.
        is_step = "CLUSTER_SPEC" in os.environ
        self.launcher_timeout = _ABANDONED_SECONDS if is_step else None
        self._parent = f"projects/{settings['project']}/locations/{settings['region']}"
        self._logs: dict[str, Logs] = {}
        self._client, self._session = self._connected()

    def submit(self, name: str, attempt: Attempt) -> Job:
        """Creates a job, unless an earlier request has; see `Scheduler`."""
        wanted = custom_job.ATTEMPT_LABEL, custom_job.label_of(attempt)
        for job in self._listed(*wanted):
            return self._job(job)
        made = custom_job.custom_job(name, attempt, self._settings, self._code)
        request = {"parent": self._parent, "custom_job": made}
        return self._job(self._ask(self._client.create_custom_job, request))

    def jobs(self, name: str) -> list[Job]:
        """The jobs of this name, the newest last; see `Scheduler`."""
        listed = self._listed(custom_job.NAME_LABEL, name)
        return [self._job(each) for each in sorted(listed, key=lambda j: j.create_time)]

    def adopt(self, job: Job) -> None:
        """Nothing: jobs outlive their launcher; see `Scheduler`."""

    def cancel(self, job: Job) -> None:
        """Cancels a job; see `Scheduler`."""
        request = {"name": f"{self._parent}/customJobs/{job.id}"}
        self._ask(self._client.cancel_custom_job, request, fine=(400, 404))  # it ended

    def output(self, job: Job, attempt: Attempt) -> Output:
        """The logs and events of a job; see `Scheduler`."""
        remote = cast(RemoteAttempt, attempt)
        return ServiceOutput(remote, self.name, self._logs_of(job.id))

    def _listed(self, label: str, value: str) -> list[Any]:
        request = {"parent": self._parent, "filter": f'labels.{label}="{value}"'}
        listed = self._ask(
            lambda **how: list(self._client.list_custom_jobs(**how)), request
        )
        return [each for each in listed or () if each.labels.get(label) == value]

    def _job(self, job: Any) -> Job:
        number = job.name.rpartition("/")[2]
        state = job.state.name.removeprefix("JOB_STATE_")
        at = phase(state, _WAITING, _RUNNING)
        reason = google_api.one_line(job.error.message)
        if at == "waiting" and not reason:
            reason = self._logs_of(number).last_of_service
        out_of_time = at == "ended" and self._is_out_of_time(job)
        return Job(
            number,
            custom_job.folder_of(job),
            at,
            f"{state} ({reason})" if reason else state,
            cancelled=state in _CANCELLED and not out_of_time,
            reclaimed=out_of_time,
        )

    def _is_out_of_time(self, job: Any) -> bool:
        limit = self._settings["time_limit"]
        if not (limit and job.start_time and job.end_time):
            return False
        return (job.end_time - job.start_time).total_seconds() >= limit

    def _logs_of(self, job_id: str) -> Logs:
        if job_id not in self._logs:
            project = self._settings["project"]
            self._logs[job_id] = Logs(self._session, project, job_id)
        return self._logs[job_id]

    def _connected(self) -> tuple[Any, Any]:
        import google.auth
        from google.auth import exceptions
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import aiplatform_v1 as api

        host = f"https://{self._settings['region']}-aiplatform.googleapis.com"
        options = {"api_endpoint": self._settings["endpoint"] or host}
        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except exceptions.GoogleAuthError as error:
            raise UserError(
                f"Vertex AI cannot be reached: {first_line(str(error))}",
                key="trainer.distribution.launcher",
                received="vertex",
                remedy=google_api.LOG_IN,
            ) from None
        client = api.JobServiceClient(
            credentials=credentials, transport="rest", client_options=options
        )
        return client, AuthorizedSession(credentials)

    def _ask(
        self, method: Callable[..., _T], request: Any, fine: Collection[int | str] = ()
    ) -> _T | None:
        """The service's answer; None for the statuses `fine`.

        Raises:
          UserError: The service rejects the request.
          UnreachableError: No answer, or one that passes.
        """

        def error_of(failure: google_api.ApiFailure) -> Exception | None:
            reason, what = failure.reason, failure.what
            if reason in fine:
                return None
            is_quota = reason == _TOO_MANY and _QUOTA in what.lower()
            if _passes(reason) and not is_quota:
                return UnreachableError(what)
            remedy = _REMEDIES.get(reason, self.remedy)
            return UserError(f"Vertex AI: {what}", key=KEY, remedy=remedy)

        with google_api.failures(error_of):
            return method(request=request, timeout=_SECONDS, retry=None)
        return None


def _passes(reason: int | str) -> bool:
    if isinstance(reason, str):
        return reason != "log_in"
    return reason in _PASSING or reason >= _SERVER

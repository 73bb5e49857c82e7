"""Vertex AI Pipelines as a service that runs compiled pipelines.

Uses the clients that `google.cloud.aiplatform.PipelineJob` wraps: its `submit` asks
Cloud Storage first, for minutes if that does not answer. Credentials are Google's
application default ones.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from google.cloud import aiplatform_v1 as api
from google.protobuf import json_format

from strategos.components.container import step_record
from strategos.components.errors import UserError
from strategos.components.services import google_api
from strategos.pipeline.config.sections import Config
from strategos.pipeline.remote import cron
from strategos.pipeline.remote.retries import Retries
from strategos.pipeline.remote.service import (
    ConflictError,
    Log,
    MissingError,
    Recurring,
    RemoteRun,
    StepState,
    TransientError,
    UnsentError,
    in_order,
    kind_of,
)

_SECONDS = 60.0  # For a request.
_RUN_STATES = {
    api.PipelineState.PIPELINE_STATE_SUCCEEDED: "succeeded",
    api.PipelineState.PIPELINE_STATE_FAILED: "failed",
    api.PipelineState.PIPELINE_STATE_CANCELLED: "canceled",
}
_State = api.PipelineTaskDetail.State
_TASK_STATES = {
    _State.PENDING: "running",  # it waits for machines
    _State.RUNNING: "running",
    _State.CANCEL_PENDING: "running",
    _State.CANCELLING: "running",
    _State.SUCCEEDED: "complete",
    _State.SKIPPED: "cached",
    _State.FAILED: "failed",
    _State.CANCELLED: "interrupted",
}
_REMEDIES = {
    **google_api.REMEDIES,
    403: "Give the account the roles `roles/aiplatform.user` in `vertex.project` and "
    "`roles/iam.serviceAccountUser` on `vertex.service_account`; enable the Vertex AI "
    "API.",
    404: "Check the id, `vertex.project` and `vertex.region`.",
}
_KINDS = {"unsent": UnsentError, "unanswered": TransientError, "late": TransientError}
_UNREACHABLE = "Check `vertex.region`, `vertex.endpoint` and the network; try again."

_T = TypeVar("_T")


class VertexPipelines:
    """Vertex AI Pipelines in a project and region.

    Args:
      config: The effective settings, with the section `vertex`.
      credentials: Of google-auth; by default the application's default ones.
      retries: For single requests.
      seconds: Time allowed for one request.
    """

    def __init__(
        self,
        config: Config,
        credentials: Any = None,
        retries: Retries | None = None,
        seconds: float = _SECONDS,
    ):
        assert config.vertex is not None
        section = config.vertex
        self._config, self._section = config, section
        self._credentials, self._seconds = credentials, seconds
        self._retries = retries or Retries()
        host = f"https://{section.region}-aiplatform.googleapis.com"
        self._url = section.endpoint or host
        self._parent = f"projects/{section.project}/locations/{section.region}"
        self._clients: dict[type, Any] = {}

    def check(self) -> None:
        """See Service."""
        jobs = self._client(api.PipelineServiceClient)
        request = {"parent": self._parent, "page_size": 1}
        self._ask(jobs.list_pipeline_jobs, request)

    def submit(self, file: Path, pipeline: str) -> str:
        """See Service. The id is chosen here, so the request may be sent again."""
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        job_id = f"{pipeline}-{now}-{secrets.token_hex(2)}"
        jobs, sent = self._client(api.PipelineServiceClient), []
        request = {
            "parent": self._parent,
            "pipeline_job": self._job(file),
            "pipeline_job_id": job_id,
        }

        def create() -> None:
            sent.append(job_id)
            try:
                self._ask(jobs.create_pipeline_job, request)
            except ConflictError:
                if len(sent) == 1:
                    raise  # else an earlier request has arrived

        self._retries.call(create)
        return job_id

    def run(self, run_id: str) -> RemoteRun:
        """See Service."""
        jobs = self._client(api.PipelineServiceClient)
        job = self._ask(jobs.get_pipeline_job, {"name": self._name(run_id)})
        state = _RUN_STATES.get(job.state, "running")
        spec = json_format.MessageToDict(type(job).pb(job).pipeline_spec)
        names = spec.get("root", {}).get("dag", {}).get("tasks", {})
        states = {each.task_name: _task(each) for each in job.job_detail.task_details}
        tasks = {
            name: states.get(name, StepState())
            for name in in_order(list(names or states))
        }
        return RemoteRun(
            run_id,
            self._config.name,
            state,
            {name: task.within(state) for name, task in tasks.items()},
            started=_seconds(job.create_time) or 0.0,
            finished=_seconds(job.end_time),
            message=job.error.message,
        )

    def terminate(self, run_id: str) -> None:
        """See Service."""
        jobs = self._client(api.PipelineServiceClient)
        request = {"name": self._name(run_id)}
        self._retries.call(lambda: self._ask(jobs.cancel_pipeline_job, request))

    def log(self, run: RemoteRun, node: str) -> Log:
        """See Service. The log itself is in Cloud Logging."""
        task, section = run.tasks[node], self._section
        codes = re.findall(r"non-zero status of:? (\d+)", task.message)
        job = task.container.rpartition("/")[2]
        command = (
            f"gcloud logging read 'resource.labels.job_id=\"{job}\"' "
            f"--project {section.project} --limit 50"
        )
        code = int(codes[-1]) if codes else None
        return Log((), code, command if job else "")

    def progress(self, run: RemoteRun, node: str) -> str:
        """See Service. Always "": the progress is only in Cloud Logging."""
        return ""

    def link(self, run_id: str) -> str:
        """See Service."""
        place = f"locations/{self._section.region}/pipelines/runs/{run_id}"
        site = "https://console.cloud.google.com/vertex-ai"
        return f"{site}/{place}?project={self._section.project}"

    def cron(self) -> str:
        """See Service."""
        return cron.zoned(self._config)

    def create_recurring(self, file: Path, pipeline: str) -> Recurring:
        """See Service. A run is left out while the one before still runs."""
        schedules = self._client(api.ScheduleServiceClient)
        request = {
            "parent": self._parent,
            "schedule": api.Schedule(
                display_name=pipeline,
                cron=self.cron(),
                max_concurrent_run_count=1,
                create_pipeline_job_request=api.CreatePipelineJobRequest(
                    parent=self._parent, pipeline_job=self._job(file)
                ),
            ),
        }
        return _recurring(
            self._retries.call(
                lambda: self._ask(schedules.create_schedule, request), creates=True
            )
        )

    def recurring(self, pipeline: str) -> list[Recurring]:
        """See Service."""
        schedules = self._client(api.ScheduleServiceClient)
        request = {"parent": self._parent, "filter": f'display_name="{pipeline}"'}
        listed = self._retries.call(
            lambda: self._ask(
                lambda **how: list(schedules.list_schedules(**how)), request
            )
        )
        return [_recurring(each) for each in listed if each.display_name == pipeline]

    def delete_recurring(self, recurring_id: str) -> None:
        """See Service."""
        schedules = self._client(api.ScheduleServiceClient)
        request = {"name": f"{self._parent}/schedules/{recurring_id}"}

        def delete(**how: Any) -> None:
            schedules.delete_schedule(**how).result(timeout=self._seconds)

        with contextlib.suppress(MissingError):  # deleted by an earlier attempt
            self._retries.call(lambda: self._ask(delete, request))

    def _name(self, run_id: str) -> str:
        return f"{self._parent}/pipelineJobs/{run_id}"

    def _job(self, file: Path) -> api.PipelineJob:
        job = api.PipelineJob.from_json(file.read_text())
        job.service_account = self._section.service_account or ""
        return job

    def _client(self, kind: type) -> Any:
        if kind not in self._clients:
            with google_api.failures(self._error_of):
                self._clients[kind] = kind(
                    credentials=self._credentials,
                    transport="rest",
                    client_options={"api_endpoint": self._url},
                )
        return self._clients[kind]

    def _ask(self, method: Callable[..., _T], request: Mapping[str, Any]) -> _T:
        with google_api.failures(self._error_of):
            return method(request=request, timeout=self._seconds, retry=None)

    def _error_of(self, failure: google_api.ApiFailure) -> UserError:
        reason = failure.reason
        kind = kind_of(reason) if isinstance(reason, int) else _KINDS.get(reason)
        return (kind or UserError)(
            f"Vertex AI at {self._url}, {self._parent}: {failure.what}",
            remedy=_REMEDIES.get(reason, _UNREACHABLE),
        )


def _task(detail: api.PipelineTaskDetail) -> StepState:
    state = _TASK_STATES.get(detail.state, "pending")
    waits = "waits for machines" if detail.state == _State.PENDING else ""
    made = {**detail.outputs}.get(step_record.OUTPUT)
    records = made.artifacts if made else ()
    return StepState(
        state,
        _seconds(detail.start_time),
        None if state in ("pending", "running") else _seconds(detail.end_time),
        detail.error.message or waits,
        detail.executor_detail.container_detail.main_job,
        next((each.uri for each in records), ""),
    )


def _recurring(schedule: api.Schedule) -> Recurring:
    is_active = schedule.state == api.Schedule.State.ACTIVE
    next_run = _seconds(schedule.next_run_time) if is_active else None
    name = schedule.name.rpartition("/")[2]
    return Recurring(name, schedule.cron, is_active, next_run)


def _seconds(when: datetime.datetime | None) -> float | None:
    return None if when is None else when.timestamp()

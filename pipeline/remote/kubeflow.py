"""Kubeflow Pipelines 2 as a service that runs compiled pipelines."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from strategos.components.container import step_log
from strategos.components.errors import UserError
from strategos.pipeline.config.sections import Config
from strategos.pipeline.remote import argo, cron, pod_log
from strategos.pipeline.remote.kubeflow_api import (
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    Api,
)
from strategos.pipeline.remote.retries import Retries
from strategos.pipeline.remote.service import (
    ConflictError,
    Log,
    MissingError,
    Recurring,
    RemoteRun,
    StepState,
    in_order,
    unix_seconds,
)

Json = dict[str, Any]

ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"
"""KFP's own variable with the URL of the API, if `kubeflow.endpoint` is not set."""
PAGE_VARIABLE = "KF_PIPELINES_UI_ENDPOINT"
"""KFP's own variable with the URL of the user interface, if it is another one."""
_TOKEN_FILE = "/var/run/secrets/kubeflow/pipelines/token"  # KFP's own default
_EQUALS = 1  # In KFP's filters.
_RUN_STATES = {"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELED": "canceled"}
_TASK_STATES = {"SUCCEEDED": "complete", "FAILED": "failed", "SKIPPED": "cached"}


def endpoint(config: Config, environment: Mapping[str, str]) -> str:
    """The URL of the API; "" if neither the settings nor the environment have it."""
    endpoint_of_yaml = config.kubeflow.endpoint if config.kubeflow else None
    return (endpoint_of_yaml or environment.get(ENDPOINT_VARIABLE, "")).rstrip("/")


def connect(config: Config, environment: Mapping[str, str]) -> KubeflowPipelines:
    """The service that the settings and the environment name; asks nothing yet."""
    api = Api(
        config,
        endpoint(config, environment),
        token=environment.get(TOKEN_VARIABLE, ""),
        token_file=environment.get(TOKEN_FILE_VARIABLE, _TOKEN_FILE),
    )
    return KubeflowPipelines(config, api, environment.get(PAGE_VARIABLE, ""))


class KubeflowPipelines:
    """An installation of Kubeflow Pipelines 2.

    Args:
      config: The effective settings, with the section `kubeflow`.
      api: The API.
      page: URL of the user interface; by default the URL of the API.
      retries: For single requests.
    """

    def __init__(
        self,
        config: Config,
        api: Api,
        page: str = "",
        retries: Retries | None = None,
    ):
        assert config.kubeflow is not None
        self._config, self._section, self._api = config, config.kubeflow, api
        self._page = (page or api.url).rstrip("/")
        self._retries = retries or Retries()

    def check(self) -> None:
        """See Service.

        Raises:
          BadInputError: The URL leads to no API of KFP, or the namespace is missing.
        """
        try:
            health = self._api.ask("GET", "/healthz")
        except MissingError as error:
            raise self._api.not_kfp("it answers /healthz with 404") from error
        if health.get("multi_user") and not self._section.namespace:
            raise self._config.problem(
                "kubeflow.namespace",
                f"is missing, but {self._api.url} serves several users",
                remedy="Set it to the namespace that the runs belong to.",
            )

    def submit(self, file: Path, pipeline: str) -> str:
        """See Service."""
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        body = {
            "display_name": f"{pipeline} {now}",
            "experiment_id": self._experiment(pipeline),
            **self._job(file),
        }
        return self._create("/runs", body)["run_id"]

    def run(self, run_id: str) -> RemoteRun:
        """See Service."""
        record = self._api.ask("GET", f"/runs/{run_id}")
        workflow = self._workflow(run_id)
        state = _run_state(record, argo.is_terminated(workflow))
        begun = argo.names(workflow)
        names = in_order(_nodes(record) or begun)
        if begun:
            tasks = {name: argo.task(workflow, name) for name in names}
        else:
            tasks = {name: _task(record, name) for name in names}
        return RemoteRun(
            run_id,
            self._config.name,
            state,
            {name: task.within(state) for name, task in tasks.items()},
            started=unix_seconds(record.get("created_at")) or 0.0,
            finished=unix_seconds(record.get("finished_at")),
            message=argo.message(workflow) or _error(record),
        )

    def terminate(self, run_id: str) -> None:
        """See Service."""
        path = f"/runs/{run_id}:terminate"
        self._retries.call(lambda: self._api.ask("POST", path))

    def log(self, run: RemoteRun, node: str) -> Log:
        """See Service. The log exists as long as the pod, or Argo's archive of it."""
        logs = f"kubectl logs --namespace {self._pods_in()}"
        for pod, text in self._logs(run, node):
            command = f"{logs} {pod} --container main"
            return Log(tuple(argo.last_lines(text)), argo.exit_code(text), command)
        return Log(
            command=f"{logs} --container main --prefix "
            f"--selector pipeline/runid={run.run_id}"
        )

    def progress(self, run: RemoteRun, node: str) -> str:
        """See Service. In the log of the step's pod."""
        for _, text in self._logs(run, node):
            return step_log.last_progress(text)
        return ""

    def _pods_in(self) -> str:
        return self._section.namespace or "kubeflow"

    def _logs(self, run: RemoteRun, node: str) -> Iterator[tuple[str, str]]:
        """Yields (pod, log) for each pod of a step, if its log can be read."""
        for pod in argo.pods(run.tasks[node].container, node):
            text = self._archived(run.run_id, pod)
            text = text or pod_log.read(pod, self._pods_in())
            if text:
                yield pod, text

    def _archived(self, run_id: str, pod: str) -> str:
        """A pod's log by KFP's API; "" if it has none."""
        try:
            path = f"/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log"
            response = self._api.send("GET", path)
        except UserError:
            return ""
        text = response.content.decode(errors="replace")
        # An error that comes after the status 200 has been sent.
        is_log = response.ok and not text.startswith('{"error_message"')
        return text if is_log else ""

    def link(self, run_id: str) -> str:
        """See Service."""
        return f"{self._page}/#/runs/details/{run_id}"

    def cron(self) -> str:
        """See Service."""
        return cron.seconds_first(self._config)

    def create_recurring(self, file: Path, pipeline: str) -> Recurring:
        """See Service. One run makes up for all times that were missed."""
        body = {
            "display_name": pipeline,
            "experiment_id": self._experiment(pipeline),
            **self._namespace(),
            **self._job(file),
            "max_concurrency": "1",
            "mode": "ENABLE",
            "no_catchup": True,
            "trigger": {"cron_schedule": {"cron": self.cron()}},
        }
        return self._recurring(self._create("/recurringruns", body))

    def recurring(self, pipeline: str) -> list[Recurring]:
        """See Service."""
        experiment = self._find_experiment(pipeline)
        query = {"experiment_id": experiment, "page_size": 100, **self._namespace()}
        schedules: list[Recurring] = []
        while experiment:
            page = self._read("/recurringruns", query)
            schedules += [
                self._recurring(each)
                for each in page.get("recurringRuns") or ()
                if each.get("display_name") == pipeline
            ]
            query["page_token"] = page.get("next_page_token")
            if not query["page_token"]:
                break
        return schedules

    def delete_recurring(self, recurring_id: str) -> None:
        """See Service."""
        path = f"/recurringruns/{recurring_id}"
        with contextlib.suppress(MissingError):  # deleted by an earlier attempt
            self._retries.call(lambda: self._api.ask("DELETE", path))

    def _recurring(self, record: Json) -> Recurring:
        trigger = record.get("trigger") or {}
        fields = (trigger.get("cron_schedule") or {}).get("cron") or ""
        is_active = record.get("status") != "DISABLED"
        zone = self._section.timezone
        next_run = cron.next_of_kfp(fields, zone, time.time()) if is_active else None
        return Recurring(record["recurring_run_id"], fields, is_active, next_run)

    def _job(self, file: Path) -> Json:
        """The fields that runs and recurring runs of a compiled file have in common."""
        spec, *platform = yaml.safe_load_all(file.read_text())
        if platform:
            spec = {"pipeline_spec": spec, "platform_spec": platform[0]}
        body: Json = {
            "pipeline_spec": spec,
            "runtime_config": {"pipeline_root": self._section.root},
        }
        if self._section.service_account:
            body["service_account"] = self._section.service_account
        return body

    def _experiment(self, name: str) -> str:
        """The id of the experiment of a name, which is created if it is missing."""
        experiment = self._find_experiment(name)
        if experiment:
            return experiment
        body = {"display_name": name, **self._namespace()}
        try:
            return self._create("/experiments", body)["experiment_id"]
        except ConflictError:  # made by another client meanwhile
            experiment = self._find_experiment(name)
            if not experiment:
                raise
            return experiment

    def _find_experiment(self, name: str) -> str:
        predicate = {"operation": _EQUALS, "key": "display_name", "stringValue": name}
        query = {"filter": json.dumps({"predicates": [predicate]}), **self._namespace()}
        experiments = self._read("/experiments", query).get("experiments")
        return experiments[0]["experiment_id"] if experiments else ""

    def _namespace(self) -> dict[str, str]:
        name = self._section.namespace
        return {"namespace": name} if name else {}

    def _workflow(self, run_id: str) -> Json:
        """The Argo workflow of a run; {} if this KFP does not give it."""
        try:
            response = self._api.send("GET", f"/apis/v1beta1/runs/{run_id}")
            return json.loads(response.json()["pipeline_runtime"]["workflow_manifest"])
        except (UserError, ValueError, KeyError, TypeError):
            return {}

    def _create(self, path: str, body: Json) -> Json:
        return self._retries.call(
            lambda: self._api.ask("POST", path, body), creates=True
        )

    def _read(self, path: str, query: Json) -> Json:
        return self._retries.call(lambda: self._api.ask("GET", path, query=query))


def _run_state(run: Json, is_terminated: bool) -> str:
    """The state; KFP 2.0.5 ends a terminated run as FAILED, and traces rarely why."""
    state = _RUN_STATES.get(run.get("state", ""), "running")
    before = [each.get("state") for each in run.get("state_history") or ()]
    ended = is_terminated or "CANCELING" in before
    return "canceled" if state == "failed" and ended else state


def _nodes(run: Json) -> list[str]:
    """The names of the steps in a run's specification."""
    spec: Json = run.get("pipeline_spec") or {}
    spec = spec.get("pipeline_spec", spec)
    return list(spec.get("root", {}).get("dag", {}).get("tasks", {}))


def _task(run: Json, node: str) -> StepState:
    """The state of a step by KFP's API alone, which has no reasons."""
    for detail in (run.get("run_details") or {}).get("task_details") or ():
        if detail.get("display_name") == node:
            state = _TASK_STATES.get(detail.get("state", ""), "running")
            end = None if state == "running" else unix_seconds(detail.get("end_time"))
            begin = unix_seconds(detail.get("start_time"))
            return StepState(
                state, begin, end, _error(detail), detail.get("pod_name") or ""
            )
    return StepState()


def _error(record: Json) -> str:
    return (record.get("error") or {}).get("message") or ""

"""Trains as an object of Kubernetes with one pod for each task: a TFJob or a JobSet.

This process and all pods see `run.root` or, by `folder`, copies of the training's files
in an object store, or on a volume that is mounted at the same path.
Requests to Kubernetes' API are repeated without a connection and after 429, 500 and
above. All other errors end the training with the API's own words: 400, 401, 403, 404
(also: the cluster has no objects of this kind) and 422. A 409 means that the object
exists already.
A kind of request that was allowed once is repeated after 403, too: an API server that
has just started denies everything until it has read the roles.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from strategos.components.errors import UserError
from strategos.components.files import filesystems
from strategos.components.services import kubernetes_client
from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.launchers.jobs import staging, training
from strategos.components.trainer.launchers.jobs.attempt import Attempt, RemoteAttempt
from strategos.components.trainer.launchers.jobs.kubernetes.logs import PodLogs
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    FOLDER_ANNOTATION,
    NAME_LABEL,
    Resource,
    manifest,
)
from strategos.components.trainer.launchers.jobs.output import (
    FileOutput,
    Output,
    ServiceOutput,
)
from strategos.components.trainer.launchers.jobs.scheduler import (
    Job,
    Phase,
    UnreachableError,
)
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import fingerprint

_SECONDS = (5.0, 30.0)  # to connect, and to answer
_ABANDONED_SECONDS = 600.0
_EXISTS, _FORBIDDEN, _NOT_FOUND, _TOO_MANY, _SERVER = 409, 403, 404, 429, 500
_NO_MEMORY = "OOMKilled"
_ENDED = ("Succeeded", "Failed")
_CHIEF = Task("chief")
_PASSING = ("ContainerCreating", "PodInitializing")
# Reasons for which a container waits until somebody changes the object.
_HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")


def launcher(resource: Resource, description: str) -> Launcher:
    """The launcher that trains as an object of this kind.

    Args:
      resource: The kind.
      description: For the documentation, see `Launcher`.
    """
    return Launcher(
        resource.launcher,
        description,
        functools.partial(launch, resource),
        check=functools.partial(check, resource),
        services=("kubeflow",),
        fixed_size="",
    )


def launch(
    resource: Resource, spec: WorkerSpec, operation: Operation
) -> dict[str, Any]:
    """Creates an object, or joins the object that an earlier launcher left.

    Args:
      resource: The kind of the object.
      spec: The training.
      operation: Time-outs and restarts; its `job` has the settings for the object.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: Kubernetes rejects the object, its pods cannot start, or the user's
        code, settings or data cannot be trained with.
      WorkerError: The object failed by an internal error.
    """
    settings = operation.job
    check(resource, spec.checkpoint_dir, settings)
    code = ""
    if filesystems.is_remote(settings["folder"] or spec.checkpoint_dir):
        code = fingerprint.fingerprint(spec.folder, spec.module, files=spec.files)
    jobs = PodJobs(resource, settings, code, operation.min_workers)

    def train(moved: WorkerSpec) -> dict[str, Any]:
        if code or settings.get("modules"):
            moved = staging.in_image(moved, settings, "kubeflow.modules")
        return training.launch(moved, operation, jobs)

    return staging.trained(spec, settings, resource.key, train)


def check(resource: Resource, root: str, settings: Mapping[str, Any]) -> None:
    """Rejects a root that no pod sees.

    Args:
      resource: The kind of the object that has the pods.
      root: Path or URL of the root, or a folder in it.
      settings: The section `resource.key`.

    Raises:
      UserError: `root` is neither in an object store nor on one of the volumes, and no
        `folder` is set.
    """
    folder, mounts = settings["folder"], [v["path"] for v in settings["volumes"]]
    if folder or filesystems.is_remote(root) or staging.is_below(root, mounts):
        return
    raise UserError(
        f"no volume of the {resource.kind}'s pods holds this folder",
        key="run.root",
        received=root,
        expected=f"a folder below {' or '.join(mounts)}" if mounts else "",
        remedy=f"Name a URL such as s3://BUCKET/FOLDER in {resource.key}.folder, which "
        "gets copies of the training's files; or move the root to one of "
        f"{resource.key}.volumes.",
    )


class PodJobs:
    """Objects of one kind, by Kubernetes' API, as a `Scheduler`.

    Credentials come from kubeconfig or from the pod.

    Args:
      resource: The kind.
      settings: The section `resource.key`, with times in seconds.
      code: Fingerprint of the user's code, or "" with a volume.
      least: Number of pods that a training needs if others are lost; None for all.
    """

    name = "Kubernetes"

    def __init__(
        self,
        resource: Resource,
        settings: Mapping[str, Any],
        code: str = "",
        least: int | None = None,
    ):
        from kubernetes import client

        self._resource, self._settings, self._code = resource, settings, code
        self._least = least
        self.remedy = f"Check {resource.key}, and the pods with `kubectl describe`."
        self.pending_timeout = settings["pending_timeout"]
        api, own = kubernetes_client.connect(resource.launcher)
        self._namespace = settings["namespace"] or own
        place = (resource.group, resource.version, self._namespace, resource.plural)
        self._place = place
        step = step_of(os.environ)
        self._owner = step if self._namespace == own else None
        self.launcher_timeout = _ABANDONED_SECONDS if step else None
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._allowed: set[str] = set()

    def submit(self, name: str, attempt: Attempt) -> Job:
        """Creates an object; see `Scheduler`."""
        arguments = (name, attempt, self._settings, self._code, self._owner)
        body = manifest(self._resource, *arguments)
        create = self._objects.create_namespaced_custom_object
        self._asked(create, *self._place, body, fine=_EXISTS)
        return Job(body["metadata"]["name"], str(attempt.folder), "waiting", "created")

    def jobs(self, name: str) -> list[Job]:
        """The objects of this name; see `Scheduler`."""
        listed = self._objects.list_namespaced_custom_object
        label = f"{NAME_LABEL}={name}"
        items = self._asked(listed, *self._place, label_selector=label)["items"]
        items.sort(key=lambda each: each["metadata"]["name"])
        return [self._job(each) for each in items]

    def output(self, job: Job, attempt: Attempt) -> Output:
        """The logs and events of a job; see `Scheduler`."""
        if not isinstance(attempt, RemoteAttempt):
            return FileOutput(attempt, self.name)
        pod_of = functools.partial(self._pod_of, job.id)
        where = (self._namespace, self._selector(job.id))
        logs = PodLogs(self._core.api_client, *where, pod_of)
        return ServiceOutput(attempt, self.name, logs)

    def adopt(self, job: Job) -> None:
        """Makes this step's pod the owner of an object; see `Scheduler`."""
        if self._owner:
            patch = self._objects.patch_namespaced_custom_object
            body = {"metadata": {"ownerReferences": [self._owner]}}
            self._asked(patch, *self._place, job.id, body, fine=_NOT_FOUND)

    def cancel(self, job: Job) -> None:
        """Deletes an object and its pods; see `Scheduler`."""
        delete = self._objects.delete_namespaced_custom_object
        how: dict[str, Any] = {"propagation_policy": "Foreground", "fine": _NOT_FOUND}
        self._asked(delete, *self._place, job.id, **how)

    def _job(self, resource: Mapping[str, Any]) -> Job:
        name, success = resource["metadata"]["name"], self._resource.success
        status = resource.get("status", {})
        conditions = status.get("conditions") or ()
        true = {each["type"]: each for each in conditions if each["status"] == "True"}
        failed = true.get("Failed")
        ended = failed or true.get(success)
        deleted = not ended and "deletionTimestamp" in resource["metadata"]
        pods = [] if deleted or success in true else self._pods(name)
        size = self._resource.size(resource["spec"])
        begun, enough = self._begun(name, pods, size)
        runs = deleted or enough
        phase: Phase = "ended" if ended else "running" if runs else "waiting"
        state = ended["type"] if ended else "Being deleted" if deleted else phase
        reasons = [each for pod in pods for each in _reasons(pod)]
        text = "; ".join(f"{pod}: {why} {more}".strip() for pod, why, more in reasons)
        if not (any(status.values()) or deleted):
            text = f"{self._resource.operator} has not handled it yet"
        short = any(why == _NO_MEMORY for _, why, _ in reasons)
        return Job(
            name,
            resource["metadata"].get("annotations", {}).get(FOLDER_ANNOTATION, ""),
            phase,
            f"{state} ({text})" if text else state,
            hopeless=any(why in _HOPELESS for _, why, _ in reasons),
            cancelled=deleted,
            reclaimed=bool(failed and self._resource.is_out_of_time(failed)),
            partial=0 < begun < size,
            hint=f"Raise {self._resource.key}.memory." if short else "",
        )

    def _begun(self, job: str, pods: list[Any], size: int) -> tuple[int, bool]:
        """Number of a job's pods that run, and whether its training needs no other.

        A pod that has ended counts as well, unless it is to be replaced. The end of the
        chief's pod ends the training, whether or not the object says so already.
        """
        if self._least is None:
            begun = sum(pod.status.phase != "Pending" for pod in pods)
            return begun, begun == size
        pattern = self._resource.pod(job, _CHIEF)
        chiefs = [pod for pod in pods if fnmatch.fnmatch(pod.metadata.name, pattern)]
        ended = any(pod.status.phase in _ENDED for pod in chiefs)
        begun = sum(_runs(pod) or pod.status.phase == "Succeeded" for pod in pods)
        led = any(map(_runs, chiefs))
        return begun, ended or (led and begun >= self._least)

    def _pods(self, job: str) -> list[Any]:
        listed, label = self._core.list_namespaced_pod, self._selector(job)
        return self._asked(listed, self._namespace, label_selector=label).items

    def _selector(self, job: str) -> str:
        return f"{self._resource.label}={job}"

    def _pod_of(self, job: str, task: Task) -> str:
        """Name of a task's pod; "" as long as Kubernetes chooses it."""
        name = self._resource.pod(job, task)
        if "?" not in name:
            return name
        pods = self._pods(job)
        named = [pod for pod in pods if fnmatch.fnmatch(pod.metadata.name, name)]
        named.sort(key=lambda pod: pod.metadata.creation_timestamp)
        return named[-1].metadata.name if named else ""

    def _asked(
        self, ask: Callable[..., Any], *arguments: Any, fine: int = 0, **how: Any
    ) -> Any:
        """The answer of Kubernetes' API; None for the status `fine`.

        Raises:
          UserError: The API rejects the request.
          UnreachableError: No answer, or one that passes.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = ask(*arguments, _request_timeout=_SECONDS, **how)
            self._allowed.add(ask.__name__)
            return answer
        except HTTPError as error:
            raise UnreachableError(str(error)) from None
        except ApiException as error:
            if error.status == fine:
                return None
            text = _message(error)
            starts = error.status == _FORBIDDEN and ask.__name__ in self._allowed
            if starts or error.status == _TOO_MANY or error.status >= _SERVER:
                raise UnreachableError(f"{error.status} {text}") from None
            remedy = "Check the service account and namespace."
            if error.status == _NOT_FOUND:
                kind = self._resource
                remedy = (
                    f"Check {kind.key}.namespace, and that {kind.operator} "
                    f"({kind.kind}, {kind.group}/{kind.version}) is installed."
                )
            raise UserError(
                f"Kubernetes answers {error.status}: {text}",
                key=self._resource.key,
                remedy=remedy,
            ) from None


def step_of(environ: Mapping[str, str]) -> dict[str, str] | None:
    """A reference to this pod, if it is a step of Kubeflow Pipelines; else None.

    KFP starts a step again only as long as its run lasts, so a job must not outlive
    the step for long. Elsewhere a launcher may come back after days.

    Args:
      environ: The environment; KFP sets name and id of the pod in each step.
    """
    name, uid = environ.get("KFP_POD_NAME"), environ.get("KFP_POD_UID")
    if not (name and uid):
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


def _runs(pod: Any) -> bool:
    """Whether a pod runs, and does not wait to start a container again."""
    states = [each.state for each in pod.status.container_statuses or ()]
    return pod.status.phase == "Running" and not any(state.waiting for state in states)


def _reasons(pod: Any) -> Iterator[tuple[str, str, str]]:
    """Pod, reason and message of each problem that keeps a pod from running."""
    name = pod.metadata.name
    for each in pod.status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False":
            yield name, each.reason or "", each.message or ""
    for each in pod.status.container_statuses or ():
        waiting, ended = each.state.waiting, each.state.terminated
        if waiting and waiting.reason not in _PASSING:
            yield name, waiting.reason or "", waiting.message or ""
        elif ended and ended.exit_code:
            yield name, ended.reason or "", f"with exit code {ended.exit_code}"


def _message(error: Any) -> str:
    """The API's own words; the body is JSON unless a proxy answers."""
    try:
        return json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        return str(error.body or error.reason).strip()[:300]

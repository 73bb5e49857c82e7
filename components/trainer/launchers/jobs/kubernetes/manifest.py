"""The object that an attempt becomes in Kubernetes, and the pods of its tasks."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from strategos.components.processes import Grace
from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.launchers.jobs import pods
from strategos.components.trainer.launchers.jobs.attempt import (
    CODE_VARIABLE,
    Attempt,
    RemoteAttempt,
)

CONTAINER = "tensorflow"  # the training operator rejects every other name
NAME_LABEL = "strategos/training"
FOLDER_ANNOTATION = "strategos/folder"
CLUSTER_VARIABLE = "STRATEGOS_CLUSTER"
"""Environment variable of a task with the addresses of all tasks by type, as JSON."""

KEPT_SECONDS = 3600
"""Time after which Kubernetes deletes an object that has ended."""

_TASK = "strategos.components.trainer.launchers.jobs.kubernetes.task"

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Resource:
    """A custom resource of Kubernetes with pods that are the tasks of a training.

    Attributes:
      launcher: Name of the launcher, and of the section with its settings.
      kind: Kind of the objects.
      group: Group of the API.
      version: Version of the API.
      plural: Name of the objects in the API's paths.
      operator: The program that makes their pods, for messages.
      label: Label of a pod with the name of its object.
      success: Type of the condition of an object that has succeeded.
      spec: Returns the `spec` of an object. Receives its name, the number of tasks by
        type, the template of their pods, the time limit in seconds or None, and whether
        Kubernetes starts workers again that are lost.
      size: Returns the number of pods of a `spec`.
      pod: Returns the name of a task's pod, with a `?` for each character that
        Kubernetes chooses. Receives the name of the object, and the task.
      is_out_of_time: Whether the condition `Failed` of an object reports that its time
        limit is over.
    """

    launcher: str
    kind: str
    group: str
    version: str
    plural: str
    operator: str
    label: str
    success: str
    spec: Callable[[str, Mapping[str, int], Json, int | None, bool], Json]
    size: Callable[[Json], int]
    pod: Callable[[str, Task], str]
    is_out_of_time: Callable[[Mapping[str, str]], bool]

    @property
    def key(self) -> str:
        """The section of the YAML with the settings."""
        return f"trainer.distribution.{self.launcher}"


def manifest(
    resource: Resource,
    name: str,
    attempt: Attempt,
    settings: Mapping[str, Any],
    code: str,
    owner: Mapping[str, str] | None = None,
) -> Json:
    """The object of an attempt.

    Kubernetes restarts neither the object nor its pods; with `min_workers`, only pods
    of workers.

    Args:
      resource: The kind of the object.
      name: Name of the training, a label of the object.
      attempt: The attempt; the name of the object is unique to it.
      settings: The section `resource.key`, with times in seconds.
      code: Fingerprint of the user's code, which the tasks compare without a volume.
      owner: Reference to the object with which Kubernetes deletes this one.
    """
    own = f"{name}-{attempt.folder.name}-{_token(attempt)}"
    counts = Counter(task.type for task in attempt.tasks)
    limit = settings["time_limit"] and int(settings["time_limit"])
    # The labels are for a network policy.
    template = {"metadata": {"labels": {NAME_LABEL: name}}}
    template |= {"spec": _pod(resource, attempt, settings, code)}
    return {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "metadata": {
            "name": own,
            "labels": {NAME_LABEL: name},
            "annotations": {FOLDER_ANNOTATION: str(attempt.folder)},
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": resource.spec(own, counts, template, limit, attempt.is_elastic),
    }


def _token(attempt: Attempt) -> str:
    """Tells the attempt from a removed attempt of the same number, as 6 hex digits."""
    return hashlib.sha256(attempt.token.encode()).hexdigest()[:6]


def _pod(
    resource: Resource, attempt: Attempt, settings: Mapping[str, Any], code: str
) -> Json:
    variables = list(pods.variables(settings))
    if isinstance(attempt, RemoteAttempt):
        variables.append({"name": CODE_VARIABLE, "value": code})
    mounts, volumes = pods.volumes(settings)
    container = {
        "name": CONTAINER,
        "image": settings["image"],
        "command": ["python", "-m", _TASK, resource.key, str(attempt.folder)],
        "env": variables,
        "volumeMounts": mounts,
    }
    limits = {name: settings[name] for name in ("cpu", "memory") if settings[name]}
    if settings["accelerator"]:
        accelerator = settings["accelerator"]
        limits[accelerator["type"]] = str(accelerator["count"])
    if limits:
        container["resources"] = {"limits": limits, "requests": limits}
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": int(Grace.NODE),
        "volumes": volumes,
    }
    if settings["service_account"]:
        spec["serviceAccountName"] = settings["service_account"]
    return spec

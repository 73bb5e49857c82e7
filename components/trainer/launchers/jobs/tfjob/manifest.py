"""The TFJob of an attempt: `kubeflow.org/v1`, for Kubeflow's training operator 1.x."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from strategos.components.processes import Grace
from strategos.components.trainer.launchers.jobs import pods
from strategos.components.trainer.launchers.jobs.attempt import (
    CODE_VARIABLE,
    Attempt,
    RemoteAttempt,
)

CONTAINER = "tensorflow"  # the operator rejects every other name
NAME_LABEL = "strategos/training"
FOLDER_ANNOTATION = "strategos/folder"

_TASK = "strategos.components.trainer.launchers.jobs.tfjob.task"
_KINDS = {"chief": "Chief", "worker": "Worker", "ps": "PS"}
_KEPT_SECONDS = 3600


def manifest(
    name: str,
    attempt: Attempt,
    settings: Mapping[str, Any],
    code: str,
    owner: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The TFJob of an attempt. Neither it nor its pods are restarted by the operator.

    Args:
      name: Name of the training, a label of the TFJob.
      attempt: The attempt; the name of the TFJob is unique to it.
      settings: `trainer.distribution.tfjob`, with times in seconds.
      code: Fingerprint of the user's code, which the tasks compare without a volume.
      owner: Reference to the object with which Kubernetes deletes the TFJob.
    """
    run_policy = {
        "cleanPodPolicy": "Running",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
    }
    if settings["time_limit"]:
        run_policy["activeDeadlineSeconds"] = int(settings["time_limit"])
    counts = Counter(task.type for task in attempt.tasks)
    # The labels are for a network policy.
    template = {"metadata": {"labels": {NAME_LABEL: name}}}
    template |= _pod(attempt, settings, code)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {
            "name": f"{name}-{attempt.folder.name}-{_token(attempt)}",
            "labels": {NAME_LABEL: name},
            "annotations": {FOLDER_ANNOTATION: str(attempt.folder)},
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": {
            "runPolicy": run_policy,
            "tfReplicaSpecs": {
                _KINDS[kind]: {
                    "replicas": count,
                    "restartPolicy": "Never",
                    "template": template,
                }
                for kind, count in counts.items()
            },
        },
    }


def _token(attempt: Attempt) -> str:
    """Tells the attempt from one of the same number, whose folder was removed."""
    return hashlib.sha256(attempt.token.encode()).hexdigest()[:6]


def _pod(attempt: Attempt, settings: Mapping[str, Any], code: str) -> dict[str, Any]:
    variables = list(pods.variables(settings))
    if isinstance(attempt, RemoteAttempt):
        variables.append({"name": CODE_VARIABLE, "value": code})
    mounts, volumes = pods.volumes(settings)
    container = {
        "name": CONTAINER,
        "image": settings["image"],
        "command": ["python", "-m", _TASK, str(attempt.folder)],
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
    return {"spec": spec}

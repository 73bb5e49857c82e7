"""Trains as a TFJob of Kubeflow's training operator 1.x: its spec and pods.

The operator 1.x is deprecated in favour of Kubeflow Trainer 2, which ships no
TensorFlow; the launcher `kubernetes` does the same by a JobSet.

With `min_workers`, kubelet starts a worker's container again that has failed, and the
operator makes a new pod of the same name in place of one that is gone. Without
`enableDynamicWorker`, the operator would fail a TFJob as soon as a pod of a worker is
being deleted; with it, TF_CONFIG names only the pod's own address, so another variable
has those of all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strategos.components.trainer.launchers.jobs.kubernetes import scheduler
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    CLUSTER_VARIABLE,
    KEPT_SECONDS,
    Resource,
)

_PORT = 2222  # the operator's default
_KINDS = {"chief": "Chief", "worker": "Worker", "ps": "PS"}
# Of the operator's message. Its reason is the same for all failures.
_OUT_OF_TIME = "active longer than specified deadline"


def _spec(
    name: str,
    counts: Mapping[str, int],
    template: dict[str, Any],
    limit: int | None,
    elastic: bool,
) -> dict[str, Any]:
    """The operator itself sets TF_CONFIG, except where there is a single task."""
    elastic = elastic and "worker" in counts
    policy: dict[str, Any] = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }
    if limit:
        policy["activeDeadlineSeconds"] = limit
    if elastic:  # without a limit of restarts
        template = _with_addresses(template, name, counts)
    else:
        policy["backoffLimit"] = 0
    specs = {
        _KINDS[kind]: {
            "replicas": count,
            "restartPolicy": "OnFailure" if elastic and kind == "worker" else "Never",
            "template": template,
        }
        for kind, count in counts.items()
    }
    dynamic = {"enableDynamicWorker": True} if elastic else {}
    return {"runPolicy": policy, **dynamic, "tfReplicaSpecs": specs}


def _with_addresses(
    template: dict[str, Any], name: str, counts: Mapping[str, int]
) -> dict[str, Any]:
    """The template with the addresses that the pods have by the operator's services."""
    addresses = {
        kind: [f"{name}-{kind}-{index}:{_PORT}" for index in range(count)]
        for kind, count in counts.items()
    }
    (container,) = template["spec"]["containers"]
    variable = {"name": CLUSTER_VARIABLE, "value": json.dumps(addresses)}
    container = {**container, "env": [*container["env"], variable]}
    return {**template, "spec": {**template["spec"], "containers": [container]}}


TFJOB = Resource(
    launcher="tfjob",
    kind="TFJob",
    group="kubeflow.org",
    version="v1",
    plural="tfjobs",
    operator="Kubeflow's training operator",
    label="training.kubeflow.org/job-name",
    success="Succeeded",
    spec=_spec,
    size=lambda spec: sum(s["replicas"] for s in spec["tfReplicaSpecs"].values()),
    pod=lambda job, task: f"{job}-{task.name}",
    is_out_of_time=lambda failed: _OUT_OF_TIME in failed.get("message", ""),
)

LAUNCHER = scheduler.launcher(TFJOB, "creates a TFJob in Kubernetes")

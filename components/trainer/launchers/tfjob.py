"""Trains as a TFJob of Kubeflow's training operator 1.x: its spec and pods.

The operator 1.x is deprecated in favour of Kubeflow Trainer 2, which ships no
TensorFlow; the launcher `kubernetes` does the same by a JobSet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategos.components.trainer.launchers.jobs.kubernetes import scheduler
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    KEPT_SECONDS,
    Resource,
)

_KINDS = {"chief": "Chief", "worker": "Worker", "ps": "PS"}
# Of the operator's message. Its reason is the same for all failures.
_OUT_OF_TIME = "active longer than specified deadline"


def _spec(
    name: str, counts: Mapping[str, int], template: dict[str, Any], limit: int | None
) -> dict[str, Any]:
    """The operator itself sets TF_CONFIG, except where there is a single task."""
    del name
    policy = {
        "cleanPodPolicy": "Running",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }
    if limit:
        policy["activeDeadlineSeconds"] = limit
    specs = {
        _KINDS[kind]: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": template,
        }
        for kind, count in counts.items()
    }
    return {"runPolicy": policy, "tfReplicaSpecs": specs}


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

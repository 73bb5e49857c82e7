"""Trains as a JobSet of Kubernetes (sigs.k8s.io/jobset): its spec, pods and cluster.

A JobSet has one indexed Job for each type of task. It sets no TF_CONFIG: the addresses
of the tasks follow from the names that its service gives to the pods, and Kubernetes
inserts a pod's own index.

With `min_workers`, kubelet starts a worker's container again that has failed, and the
Job makes a new pod, of the same index and name in DNS, in place of one that is gone. It
does so once the old pod has ended: two pods of one name would share its address.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strategos.components.trainer.launchers.jobs.kubernetes import scheduler
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    KEPT_SECONDS,
    Resource,
)

_PORT = 2222
_INDEX = "JOB_COMPLETION_INDEX"
# Kubernetes itself defines the variable at the end, but TF_CONFIG can contain only
# variables that are defined above it.
_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_INDEX_VARIABLE = {
    "name": _INDEX,
    "valueFrom": {"fieldRef": {"fieldPath": _ANNOTATION}},
}
# The reason of a JobSet that its policy ends, and the only rule of that policy.
_OUT_OF_TIME = "FailJobSetFailurePolicyAction"
_TIME_RULE = {
    "name": "timeLimit",
    "action": "FailJobSet",
    "onJobFailureReasons": ["DeadlineExceeded"],
}


# The largest that Kubernetes allows.
_ANY_NUMBER = (1 << 31) - 1
_REPLACED = {"backoffLimit": _ANY_NUMBER, "podReplacementPolicy": "Failed"}


def _spec(
    name: str,
    counts: Mapping[str, int],
    template: dict[str, Any],
    limit: int | None,
    elastic: bool,
) -> dict[str, Any]:
    replaced = {"worker"} if elastic else set[str]()
    addresses = {
        kind: [f"{name}-{kind}-0-{index}.{name}:{_PORT}" for index in range(count)]
        for kind, count in counts.items()
    }
    jobs = [
        {
            "name": kind,
            "replicas": 1,
            "template": {
                "spec": {
                    "completionMode": "Indexed",
                    "completions": count,
                    "parallelism": count,
                    **(_REPLACED if kind in replaced else {"backoffLimit": 0}),
                    **({"activeDeadlineSeconds": limit} if limit else {}),
                    "template": _with_cluster(
                        template, addresses, kind, again=kind in replaced
                    ),
                }
            },
        }
        for kind, count in counts.items()
    ]
    return {
        "replicatedJobs": jobs,
        "network": {
            "enableDNSHostnames": True,
            "subdomain": name,
            "publishNotReadyAddresses": True,
        },
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["chief"]},
        "failurePolicy": {"maxRestarts": 0, "rules": [_TIME_RULE]},
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }


def _with_cluster(
    template: dict[str, Any],
    addresses: Mapping[str, list[str]],
    kind: str,
    *,
    again: bool,
) -> dict[str, Any]:
    """The template with TF_CONFIG for its pods, unless there is a single task."""
    policy = "OnFailure" if again else "Never"
    pod = {**template["spec"], "restartPolicy": policy}
    if sum(map(len, addresses.values())) == 1:
        return {**template, "spec": pod}
    task = {"type": kind, "index": f"$({_INDEX})"}
    config = json.dumps({"cluster": addresses, "task": task})
    (container,) = pod["containers"]
    variables = [_INDEX_VARIABLE, {"name": "TF_CONFIG", "value": config}]
    container = {**container, "env": [*container["env"], *variables]}
    return {**template, "spec": {**pod, "containers": [container]}}


JOBSET = Resource(
    launcher="kubernetes",
    kind="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    operator="the controller of JobSets",
    label="jobset.sigs.k8s.io/jobset-name",
    success="Completed",
    spec=_spec,
    size=lambda spec: sum(
        each["template"]["spec"]["completions"] for each in spec["replicatedJobs"]
    ),
    pod=lambda job, task: f"{job}-{task.type}-0-{task.index}-?????",
    is_out_of_time=lambda failed: failed.get("reason") == _OUT_OF_TIME,
)

LAUNCHER = scheduler.launcher(JOBSET, "creates a JobSet in Kubernetes")

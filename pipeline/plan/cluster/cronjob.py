"""A Kubernetes CronJob that calls `strategos retrain --if-due` in the image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from strategos.components.errors import required
from strategos.components.trainer.launchers.jobs import pods
from strategos.pipeline.config.cluster.sections import Kubeflow
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.cluster.paths import in_step

Json = dict[str, Any]

_LONGEST_NAME = 52  # of a CronJob: Kubernetes appends 11 characters for each job


def manifest(config: Config, words: Sequence[str], schedule: str, every: int) -> Json:
    """Makes the CronJob, with image, secrets, volumes and limits of `kubeflow`.

    The whole pipeline runs in one pod, with the resources of `steps.default`.

    Args:
      config: The effective settings, after `checks.cluster.check_pod`.
      words: The command, with the paths of this machine.
      schedule: The five fields of cron.
      every: Seconds between two checks.
    """
    section = required(config.kubeflow)
    pod = _pod(section, [in_step(w, section) if w[:1] == "/" else w for w in words])
    name = re.sub("[^a-z0-9]+", "-", f"strategos-{config.name}".lower())
    job = {"backoffLimit": 0, "template": {"spec": pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name[:_LONGEST_NAME].strip("-")},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            # Without a deadline, Kubernetes gives up after 100 missed checks.
            "startingDeadlineSeconds": max(60, every),
            "jobTemplate": {"spec": job},
        },
    }


def _pod(section: Kubeflow, words: Sequence[str]) -> Json:
    step = section.step("default")
    container: Json = {
        "name": "retrain",
        "image": section.image,
        "command": ["strategos", *words],
    }
    limits = {"cpu": step.cpu, "memory": step.memory}
    if step.accelerator:
        limits[step.accelerator.type] = str(step.accelerator.count)
    limits = {name: value for name, value in limits.items() if value}
    plain = section.model_dump(mode="json")
    mounts, volumes = pods.volumes(plain)
    optional: Json = {
        "resources": {"limits": limits} if limits else None,
        "imagePullPolicy": section.image_pull_policy,
        "env": list(pods.variables(plain)),
        "volumeMounts": mounts,
    }
    container |= {name: value for name, value in optional.items() if value}
    pod: Json = {"restartPolicy": "Never", "containers": [container]}
    optional = {
        "volumes": volumes,
        "imagePullSecrets": [{"name": name} for name in section.image_pull_secrets],
        "nodeSelector": dict(step.node_selector),
        "tolerations": [t.model_dump(exclude_none=True) for t in step.tolerations],
        "activeDeadlineSeconds": step.timeout_seconds,
    }
    return pod | {name: value for name, value in optional.items() if value}

"""Resources, volumes, retries and caching of the steps of a compiled pipeline.

Settings that every target knows are in the pipeline spec. Settings of Kubernetes are
in a second document, the platform spec of kfp-kubernetes (`KubernetesExecutorConfig`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strategos.components import node_ids
from strategos.pipeline.config.cluster.sections import (
    Keys,
    Kubeflow,
    PodStep,
    Step,
    Vertex,
)

Json = dict[str, Any]

# Effect of settings on releases of KFP that do not know them.
_OLDER = {
    "retries": "KFP before 2.5 ignores it",
    **dict.fromkeys(
        (
            *("timeout", "tolerations", "config_maps"),
            *("image_pull_policy", "image_pull_secrets"),
        ),
        "KFP before 2.1 fails each step that has it",
    ),
}


def configure(spec: Json, section: Kubeflow | Vertex, cache: bool) -> None:
    """Sets resources, retries and caching of each task, in place.

    Args:
      spec: The pipeline spec.
      section: The target's section.
      cache: `run.cache`.
    """
    for node, task in spec["root"]["dag"]["tasks"].items():
        step = section.step(node)
        # The first step's answer changes from run to run. Absent options would mean
        # the cluster's default; an absent `enableCache` means no caching.
        reuses = cache and step.cache and node != node_ids.RESOLVE
        task["cachingOptions"] = {"enableCache": True} if reuses else {}
        if step.retries:
            task["retryPolicy"] = {"maxRetryCount": step.retries}
        resources = _resources(step)
        if resources:
            container(spec, node)["resources"] = resources


def container(spec: Json, node: str) -> Json:
    """The container of a node in a pipeline spec."""
    label = spec["components"][node]["executorLabel"]
    return spec["deploymentSpec"]["executors"][label]["container"]


def platform(spec: Json, section: Kubeflow) -> Json:
    """The platform spec of Kubernetes; empty if no step needs one.

    Args:
      spec: The pipeline spec.
      section: The section `kubeflow`.
    """
    common = dict(_common(section))
    executors = {
        spec["components"][node]["executorLabel"]: {
            **common,
            **_pod(section.step(node)),
        }
        for node in spec["root"]["dag"]["tasks"]
    }
    configured = {label: settings for label, settings in executors.items() if settings}
    if not configured:
        return {}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": configured}}}}


def notes(section: Kubeflow) -> Iterator[str]:
    """Yields a note for each setting that older releases of KFP ignore or fail on.

    Args:
      section: The section `kubeflow`.
    """
    parts: dict[str, Kubeflow | PodStep] = {"kubeflow": section}
    parts |= {f"kubeflow.steps.{name}": step for name, step in section.steps.items()}
    for path, part in parts.items():
        for name in sorted(part.model_fields_set & _OLDER.keys()):
            if getattr(part, name):
                yield f"{path}.{name}: {_OLDER[name]}"


def _resources(step: Step) -> Json:
    """`ResourceSpec`: cores, 10**9 bytes; 64-bit numbers are text in proto JSON."""
    resources: Json = {}
    if step.cores is not None:
        resources["cpuLimit"] = step.cores
    if step.gigabytes is not None:
        resources["memoryLimit"] = step.gigabytes
    if step.accelerator:
        resources["accelerator"] = {
            "type": step.accelerator.type,
            "count": str(step.accelerator.count),
        }
    return resources


def _common(section: Kubeflow) -> Iterator[tuple[str, Any]]:
    """The settings that all pods have in common."""
    if section.volumes:
        yield (
            "pvcMount",
            [{"constant": v.claim, "mountPath": v.path} for v in section.volumes],
        )
    yield from _keys(section.secrets, "secretAs", "secretName", "secretKey")
    yield from _keys(
        section.config_maps, "configMapAs", "configMapName", "configMapKey"
    )
    if section.image_pull_policy:
        yield "imagePullPolicy", section.image_pull_policy
    if section.image_pull_secrets:
        names = section.image_pull_secrets
        yield "imagePullSecret", [{"secretName": name} for name in names]


def _keys(
    options: tuple[Keys, ...], field: str, name: str, key: str
) -> Iterator[tuple[str, Any]]:
    volumes = [
        {name: each.name, "mountPath": each.path} for each in options if each.path
    ]
    if volumes:
        yield f"{field}Volume", volumes
    variables = [
        {
            name: each.name,
            "keyToEnv": [{key: k, "envVar": v} for v, k in sorted(each.env.items())],
        }
        for each in options
        if each.env
    ]
    if variables:
        yield f"{field}Env", variables


def _pod(step: PodStep) -> Json:
    """The settings of one step's pod."""
    settings: Json = {}
    if step.timeout_seconds is not None:
        settings["activeDeadlineSeconds"] = str(step.timeout_seconds)
    if step.node_selector:
        settings["nodeSelector"] = {"labels": dict(step.node_selector)}
    if step.tolerations:
        settings["tolerations"] = [
            each.model_dump(exclude_none=True) for each in step.tolerations
        ]
    return settings

"""Reads the Argo workflow behind a run of Kubeflow Pipelines.

KFP's own API has the states of steps, but neither why one waits or failed nor whether
its outputs were reused. For a step NAME the workflow has a pod `NAME-driver`, a group
`NAME` and in it a pod `executor`, which is skipped if the outputs are reused. Where a
cluster starts pods again, each of the three may be a node of the type Retry instead,
with one child per attempt: `executor(0)`, `executor(1)`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from strategos.pipeline.remote.service import StepState, unix_seconds

Json = dict[str, Any]

_DRIVER, _EXECUTOR = "-driver", "executor"
_ATTEMPT = re.compile(r"\((\d+)\)$")
_FAILED = ("Failed", "Error")
_LAUNCHER = re.compile(r'time="|[IWEF]\d{4} [\d:.]+ +\d+ \w+\.go:|Error: exit status')
# Of the launcher, which KFP starts the program of a step by.
_FATAL = re.compile(
    r"^F\d{4} [^\]]*\] (?:failed to execute component: )?(.*)$", re.MULTILINE
)
_SPEC = re.compile(r"^I\d{4} [^\]]*\] input \w+:\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_PANIC = re.compile(r"^panic: .*\(\*LauncherV2\)", re.MULTILINE | re.DOTALL)
_OF_DRIVER = re.compile(
    r"^F\d{4} [^\]]*\] KFP driver: (?:driver\.\w+\(.*\) failed: )?(.*)$", re.MULTILINE
)
_ABOUT_METADATA = re.compile(r"(Get|Put)\w*(Context|Execution|Artifact)")
_OUTAGE = re.compile(
    r"code = Unavailable|connection re(fused|set)|RequestError: send request failed"
)
_AGAIN = "Run again: complete steps come from the cache."
_PANICKED = (
    "KFP's launcher ended by a panic, as it does when ML Metadata cannot be reached. "
    f"{_AGAIN}"
)
_TERMINATED = "(exit code 143)"
_LINES = 20  # Shown of the log of a step that failed.
# Of the pods that run steps, and of those before them, in KFP's compiler. The last two
# are for steps with `retries`, since KFP 2.14 and in 2.5.
_TEMPLATES = ("system-container-impl", "system-container-driver")
_RETRIED = ("retry-system-container-impl", "{}-system-container-impl")
# Keys of the platform spec, and the settings that they are for.
_NEW_FIELD = re.compile(r'unknown field "(\w+)"')
_SETTINGS = {
    "activeDeadlineSeconds": "steps.NAME.timeout",
    "tolerations": "steps.NAME.tolerations",
    "configMapAsEnv": "config_maps",
    "configMapAsVolume": "config_maps",
    "imagePullPolicy": "image_pull_policy",
    "imagePullSecret": "image_pull_secrets",
}


def names(workflow: Json) -> list[str]:
    """The steps that have begun."""
    shown = (node.get("displayName", "") for node in _nodes(workflow))
    drivers = {name for name in shown if name.endswith(_DRIVER)} - {f"root{_DRIVER}"}
    return sorted(name.removesuffix(_DRIVER) for name in drivers)


def task(workflow: Json, name: str) -> StepState:
    """The state of a step."""
    group, drivers = _attempts(workflow, name), _attempts(workflow, f"{name}{_DRIVER}")
    within = group[-1] if group else {}
    executors = _attempts(workflow, _EXECUTOR, within.get("id")) if group else []
    phase, begun = within.get("phase"), executors or drivers
    if executors and executors[-1].get("phase") == "Skipped":
        return StepState("cached", _at(within, "startedAt"), _at(within, "finishedAt"))
    for attempts in (executors, drivers):
        if attempts and attempts[-1].get("phase") in _FAILED:
            return _task("failed", attempts, drivers)
    if phase == "Omitted":  # an earlier step failed
        return StepState()
    if phase == "Succeeded":
        return _task("complete", executors or group, drivers)
    if phase in _FAILED:
        return _task("failed", group, drivers)
    return _task("running", begun, drivers) if begun else StepState()


def message(workflow: Json) -> str:
    """Why the workflow as a whole ended badly; "" otherwise."""
    status = workflow.get("status") or {}
    return status.get("message", "") if status.get("phase") in _FAILED else ""


def is_terminated(workflow: Json) -> bool:
    """Whether the workflow was terminated: KFP sets its deadline to 0 seconds."""
    return (workflow.get("spec") or {}).get("activeDeadlineSeconds") == 0


def pods(node_id: str, name: str) -> Iterator[str]:
    """The names that the pod of a node may have, by Argo's two ways to name pods.

    Args:
      node_id: Id of the node; "" if it has no pod.
      name: Name of its step.
    """
    if node_id:
        workflow, _, number = node_id.rpartition("-")
        templates = (*_TEMPLATES, *(each.format(name) for each in _RETRIED))
        yield from (f"{workflow}-{template}-{number}" for template in templates)
        yield node_id


def last_lines(text: str) -> list[str]:
    """The last lines of a log that the step's own program wrote.

    If KFP's launcher or driver failed, not the program, its reason is the only line.
    """
    if driver := _OF_DRIVER.search(text):
        if _ABOUT_METADATA.search(driver[1]):
            return [f"KFP's driver failed on ML Metadata: {driver[1]}. {_AGAIN}"]
        return [f"KFP's driver failed: {driver[1]}{_too_new(driver[1])}"]
    if _PANIC.search(text):
        return [_PANICKED]
    for reason in _FATAL.findall(text):
        if "exit status" not in reason:  # of the program
            again = f". {_AGAIN}" if _OUTAGE.search(reason) else ""
            return [f"KFP's launcher failed: {reason}{again}"]
    lines = (line for line in _SPEC.sub("", text).splitlines() if line.strip())
    return list(deque((each for each in lines if not _LAUNCHER.match(each)), _LINES))


def _too_new(reason: str) -> str:
    """A remedy, if the driver does not know a setting of the compiled pipeline."""
    match = _NEW_FIELD.search(reason)
    setting = _SETTINGS.get(match[1]) if match else None
    older = "This KFP is older than 2.1: remove"
    return f". {older} kubeflow.{setting}, or update KFP." if setting else ""


def exit_code(text: str) -> int | None:
    """The exit code of the step's program, which KFP's launcher logs if it fails."""
    codes = re.findall(r"failed to execute component: exit status (\d+)", text)
    return int(codes[-1]) if codes else None


def _task(state: str, attempts: list[Json], drivers: list[Json]) -> StepState:
    part, text = attempts[-1], ""
    if state != "complete":
        text = _reason(part)
        if len(attempts) > 1:
            again = f"started again after {_reason(attempts[-2])}"
            text = f"{again}; now {text}" if text else again
    return StepState(
        state,
        _at((drivers or attempts)[0], "startedAt"),
        _at(part, "finishedAt") if state != "running" else None,
        text,
        part.get("id", "") if part.get("type") == "Pod" else "",
    )


def _reason(part: Json) -> str:
    message = part.get("message", "")
    if message.endswith(_TERMINATED):
        message += ": by SIGTERM, as when its pod is deleted or evicted"
    return message


def _nodes(workflow: Json) -> list[Json]:
    return list(((workflow.get("status") or {}).get("nodes") or {}).values())


def _attempts(workflow: Json, name: str, inside: str | None = None) -> list[Json]:
    """The attempts of a node, the oldest first; [] for an unknown node.

    The last one has the phase of them all: it is running while another may follow.

    Args:
      workflow: The workflow.
      name: The node's name.
      inside: Id of the group that it is in; by default any.
    """
    nodes = _nodes(workflow)
    named = (node for node in nodes if node.get("displayName") == name)
    attempts = (n for n in named if inside is None or n.get("boundaryID") == inside)
    node = next(attempts, None)
    if node is None or node.get("type") != "Retry":
        return [] if node is None else [node]
    children = (n for n in nodes if n.get("id") in (node.get("children") or ()))
    tries = {
        int(number[1]): child
        for child in children
        if (number := _ATTEMPT.search(child.get("displayName", "")))
    }
    in_order = [tries[number] for number in sorted(tries)] or [{}]
    return [*in_order[:-1], {**in_order[-1], "phase": node.get("phase")}]


def _at(part: Json | None, key: str) -> float | None:
    return unix_seconds((part or {}).get(key))

"""Reads the Argo workflow behind a run of Kubeflow Pipelines.

KFP's own API has the states of steps, but neither why one waits or failed nor whether
its outputs were reused. For a step NAME the workflow has a pod `NAME-driver`, a group
`NAME` and in it a pod `executor`, which is skipped if the outputs are reused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from strategos.pipeline.remote.service import Task, unix_seconds

Json = dict[str, Any]

_DRIVER = "-driver"
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
_OUTAGE = re.compile(r"code = Unavailable|connection re(fused|set)")
_AGAIN = "Run again: complete steps come from the cache."
_PANICKED = (
    "KFP's launcher ended by a panic, as it does when ML Metadata cannot be reached. "
    f"{_AGAIN}"
)
_TERMINATED = "(exit code 143)"
_LINES = 20  # Shown of the log of a step that failed.
# Of the pods that run steps, and of those before them, in KFP's compiler.
_TEMPLATES = ("system-container-impl", "system-container-driver")


def names(workflow: Json) -> list[str]:
    """The steps that have begun."""
    shown = (node.get("displayName", "") for node in _nodes(workflow))
    drivers = {name for name in shown if name.endswith(_DRIVER)} - {f"root{_DRIVER}"}
    return sorted(name.removesuffix(_DRIVER) for name in drivers)


def task(workflow: Json, name: str) -> Task:
    """The state of a step."""
    group, driver = _shown(workflow, name), _shown(workflow, f"{name}{_DRIVER}")
    executor = _executor(workflow, group) if group else None
    if executor and executor.get("phase") == "Skipped":
        return Task("cached", _at(group, "startedAt"), _at(group, "finishedAt"))
    for part in (executor, driver):
        if part and part.get("phase") in _FAILED:
            return _task("failed", part, driver)
    if group and group.get("phase") == "Omitted":  # an earlier step failed
        return Task()
    if group and group.get("phase") == "Succeeded":
        return _task("complete", executor or group, driver)
    if group and group.get("phase") in _FAILED:
        return _task("failed", group, driver)
    begun = executor or driver
    return _task("running", begun, driver) if begun else Task()


def message(workflow: Json) -> str:
    """Why the workflow as a whole ended badly; "" otherwise."""
    status = workflow.get("status") or {}
    return status.get("message", "") if status.get("phase") in _FAILED else ""


def is_terminated(workflow: Json) -> bool:
    """Whether somebody ended the workflow: KFP sets its deadline to 0 seconds."""
    return (workflow.get("spec") or {}).get("activeDeadlineSeconds") == 0


def pods(node_id: str) -> Iterator[str]:
    """The names that the pod of a node may have, by Argo's two ways to name pods."""
    if node_id:
        workflow, _, number = node_id.rpartition("-")
        yield from (f"{workflow}-{template}-{number}" for template in _TEMPLATES)
        yield node_id


def last_lines(text: str) -> list[str]:
    """The last lines of a log that the step's own program wrote.

    If KFP's launcher or driver failed, not the program, its reason is the only line.
    """
    if driver := _OF_DRIVER.search(text):
        if _ABOUT_METADATA.search(driver[1]):
            return [f"KFP's driver failed on ML Metadata: {driver[1]}. {_AGAIN}"]
        return [f"KFP's driver failed: {driver[1]}"]
    if _PANIC.search(text):
        return [_PANICKED]
    for reason in _FATAL.findall(text):
        if "exit status" not in reason:  # of the program
            again = f". {_AGAIN}" if _OUTAGE.search(reason) else ""
            return [f"KFP's launcher failed: {reason}{again}"]
    lines = (line for line in _SPEC.sub("", text).splitlines() if line.strip())
    return list(deque((each for each in lines if not _LAUNCHER.match(each)), _LINES))


def exit_code(text: str) -> int | None:
    """The exit code of the step's program, which KFP's launcher logs if it fails."""
    found = re.findall(r"failed to execute component: exit status (\d+)", text)
    return int(found[-1]) if found else None


def _task(state: str, part: Json, driver: Json | None) -> Task:
    message = part.get("message", "") if state != "complete" else ""
    if message.endswith(_TERMINATED):
        message += ": by SIGTERM, as when its pod is deleted or evicted"
    return Task(
        state,
        _at(driver, "startedAt") or _at(part, "startedAt"),
        _at(part, "finishedAt"),
        message,
        part.get("id", "") if part.get("type") == "Pod" else "",
    )


def _nodes(workflow: Json) -> list[Json]:
    return list(((workflow.get("status") or {}).get("nodes") or {}).values())


def _shown(workflow: Json, name: str) -> Json | None:
    found = (node for node in _nodes(workflow) if node.get("displayName") == name)
    return next(found, None)


def _executor(workflow: Json, group: Json) -> Json | None:
    """The newest attempt of a step's pod."""
    inside = [n for n in _nodes(workflow) if n.get("boundaryID") == group.get("id")]
    inside = [n for n in inside if n.get("type") in ("Pod", "Skipped")]
    return max(inside, key=lambda n: n.get("startedAt") or "", default=None)


def _at(part: Json | None, key: str) -> float | None:
    return unix_seconds((part or {}).get(key))

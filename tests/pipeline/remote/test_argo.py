"""What is shown of the log of a step that failed: as on KFP 2.0.5 with Argo 3.7."""

from __future__ import annotations

import re

from strategos.pipeline.remote import argo

# ML Metadata refused connections.
PANIC = """\
I1123 19:11:32.480773      23 launcher_v2.go:90] input ComponentSpec:{
  "executorLabel": "BaselineModel_executor"
}
I1123 19:11:32.482096      23 cache.go:116] Connecting to cache endpoint 10.96.0.20:8887
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x96aa7d]

goroutine 1 [running]:
github.com/kubeflow/pipelines/backend/src/v2/component.(*LauncherV2).publish(0x2f3b3dc0)
\tgithub.com/kubeflow/pipelines@v0.0.0/backend/src/v2/component/launcher_v2.go:266 +0x8
time="2026-11-23T19:11:33.454Z" level=info msg="sub-process exited" argo=true
Error: exit status 2
"""
# The object store did.
UPLOAD = """\
I1123 04:52:40.000000      24 launcher_v2.go:117] ExecutorInput:{}
trained
F1123 04:52:43.382390      24 main.go:49] failed to execute component: unable \
to upload: dial tcp 10.96.0.9:9000: connect: connection refused
Error: exit status 1
"""
# ML Metadata refused connections before the step.
DRIVER = """\
 }
}
I1123 19:32:00.721412      18 cache.go:116] Connecting to cache endpoint 10.96.0.20:8887
F1123 19:32:00.722249      18 main.go:76] KFP driver: driver.Container(runID=7975) \
failed: Failed GetContextByTypeAndName(type="system.Pipeline", name="flights")
time="2026-11-23T19:32:01.697Z" level=error msg="cannot save parameter" argo=true
Error: exit status 1
"""
# KFP's driver is older than a setting of the compiled pipeline.
SETTING = """\
F1123 19:32:00.722249      18 main.go:76] KFP driver: failed to unmarshal Kubernetes \
config, error: unknown field "podMetadata"
KubernetesConfig: {"podMetadata": {}}
Error: exit status 1
"""


# A step that Argo has started again.
GROUP = {"id": "g", "displayName": "Trainer", "type": "DAG", "phase": "Running"}
LOST = {
    "id": "flights-xzdqk-1",
    "displayName": "executor(0)",
    "type": "Pod",
    "phase": "Failed",
    "message": "main: Error (exit code 137)",
    "boundaryID": "g",
    "finishedAt": "2026-11-25T06:50:42Z",
}
AGAIN = LOST | {
    "id": "flights-xzdqk-2",
    "displayName": "executor(1)",
    "phase": "Pending",
    "message": "PodInitializing",
    "finishedAt": None,
}
RETRIES = {
    "id": "r",
    "displayName": "executor",
    "type": "Retry",
    "phase": "Running",
    "boundaryID": "g",
    "children": [LOST["id"], AGAIN["id"]],
}


def workflow_of(*nodes):
    return {"status": {"nodes": {node["id"]: node for node in nodes}}}


def test_panic_of_the_launcher_is_one_line_with_its_cause():
    (line,) = argo.last_lines(PANIC)
    assert "ML Metadata cannot be reached. Run again" in line
    assert argo.last_lines(f"trained\n{PANIC}") == [line]


def test_reason_of_the_launcher_is_all_that_is_shown():
    (line,) = argo.last_lines(UPLOAD)
    reason = "unable to upload: dial tcp 10.96.0.9:9000: connect: connection refused"
    assert line.startswith(f"KFP's launcher failed: {reason}. Run again")


def test_object_store_that_does_not_answer_is_a_reason_to_run_again():
    reason = "blob (key) (code=Unknown): RequestError: send request failed"
    (line,) = argo.last_lines(re.sub("dial tcp .*", reason, UPLOAD))
    assert line.endswith(f"{reason}. Run again: complete steps come from the cache.")


def test_reason_of_the_driver_is_all_that_is_shown():
    (line,) = argo.last_lines(DRIVER)
    reason = 'Failed GetContextByTypeAndName(type="system.Pipeline", name="flights")'
    assert line.startswith(f"KFP's driver failed on ML Metadata: {reason}. Run again")
    (line,) = argo.last_lines(SETTING)
    reason = 'failed to unmarshal Kubernetes config, error: unknown field "podMetadata"'
    assert line == f"KFP's driver failed: {reason}"


def test_step_whose_driver_failed_has_failed():
    ended = {"startedAt": "2026-11-23T19:31:58Z", "finishedAt": "2026-11-23T19:32:03Z"}
    driver = {
        "id": "flights-xzdqk-2200133234",
        "displayName": "BaselineModel-driver",
        "type": "Pod",
        "phase": "Failed",
        "message": "Error (exit code 1)",
        **ended,
    }
    group = {"id": "g", "displayName": "BaselineModel", "phase": "Omitted"}
    later = {"id": "l", "displayName": "Evaluator", "phase": "Omitted"}
    workflow = {"status": {"nodes": {"d": driver, "g": group, "l": later}}}
    task = argo.task(workflow, "BaselineModel")
    assert (task.state, task.message) == ("failed", "Error (exit code 1)")
    pod = "flights-xzdqk-system-container-driver-2200133234"
    assert pod in argo.pods(task.container, "BaselineModel")
    assert argo.task(workflow, "Evaluator").state == "pending"


def test_step_whose_pod_was_deleted_says_what_ended_it():
    pod = {
        "id": "flights-xzdqk-1711",
        "displayName": "executor",
        "templateName": "system-container-impl",
        "boundaryID": "g",
        "type": "Pod",
        "phase": "Failed",
        "message": "Error (exit code 143)",
    }
    group = {"id": "g", "displayName": "Trainer", "phase": "Failed", "children": []}
    task = argo.task({"status": {"nodes": {"g": group, pod["id"]: pod}}}, "Trainer")
    assert task.state == "failed"
    assert "SIGTERM, as when its pod is deleted" in task.message


def test_step_that_was_started_again_is_running_and_says_why():
    between = argo.task(workflow_of(GROUP, RETRIES, LOST), "Trainer")
    assert (between.state, between.finished) == ("running", None)
    again = argo.task(workflow_of(GROUP, RETRIES, AGAIN, LOST), "Trainer")
    assert (again.state, again.container) == ("running", AGAIN["id"])
    why = "started again after main: Error (exit code 137)"
    assert again.message == f"{why}; now PodInitializing"
    trains = AGAIN | {"phase": "Running", "message": ""}
    task = argo.task(workflow_of(GROUP, RETRIES, LOST, trains), "Trainer")
    assert (task.state, task.message) == ("running", why)
    done = AGAIN | {"phase": "Succeeded", "finishedAt": "2026-11-25T06:52:50Z"}
    ended = [{**node, "phase": "Succeeded"} for node in (GROUP, RETRIES)]
    task = argo.task(workflow_of(*ended, LOST, done), "Trainer")
    assert (task.state, task.message) == ("complete", "")
    assert task.finished == 1795589570


def test_step_whose_attempts_all_failed_has_failed_with_the_last_reason():
    last = AGAIN | {"phase": "Failed", "message": "main: Error (exit code 1)"}
    over = "retryStrategy.expression evaluated to false"
    ended = RETRIES | {"phase": "Failed", "message": over}
    task = argo.task(workflow_of(GROUP, ended, LOST, last), "Trainer")
    assert (task.state, task.container) == ("failed", last["id"])
    assert task.message.startswith("started again after main: Error (exit code 137)")
    assert task.message.endswith("now main: Error (exit code 1)")


def test_attempts_of_groups_and_drivers_are_read_like_those_of_pods():
    """As Argo's `templateDefaults` have it, which KFP's manifests set since 2.17."""
    step = {
        "outer": {"displayName": "Trainer", "type": "Retry", "children": ["g"]},
        "g": {"displayName": "Trainer(0)", "type": "DAG"},
        "outer-d": {"displayName": "Trainer-driver", "type": "Retry"},
        "flights-xzdqk-3": {"displayName": "Trainer-driver(0)", "type": "Pod"},
        "s": {"displayName": "executor", "type": "Skipped", "boundaryID": "g"},
    }
    step["outer-d"]["children"] = ["flights-xzdqk-3"]
    nodes = [{"id": key, "phase": "Succeeded", **node} for key, node in step.items()]
    nodes[-1]["phase"] = "Skipped"
    cached = workflow_of(*nodes)
    assert argo.names(cached) == ["Trainer"]
    assert argo.task(cached, "Trainer").state == "cached"
    failed = {"phase": "Failed", "message": "main: Error (exit code 1)"}
    drivers = [node | failed for node in nodes[2:4]]
    task = argo.task(workflow_of(*drivers), "Trainer")
    assert (task.state, task.container) == ("failed", "flights-xzdqk-3")


def test_setting_that_the_driver_does_not_know_is_named_with_the_remedy():
    (line,) = argo.last_lines(SETTING.replace("podMetadata", "activeDeadlineSeconds"))
    assert 'unknown field "activeDeadlineSeconds". This KFP is older than 2.1' in line
    assert "remove kubeflow.steps.NAME.timeout, or update KFP" in line


def test_pods_of_steps_with_retries_are_found():
    names = list(argo.pods("flights-xzdqk-1711", "Trainer"))
    assert "flights-xzdqk-retry-system-container-impl-1711" in names  # KFP 2.14
    assert "flights-xzdqk-Trainer-system-container-impl-1711" in names  # KFP 2.5
    assert list(argo.pods("", "Trainer")) == []

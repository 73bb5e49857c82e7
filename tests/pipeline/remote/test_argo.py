"""What is shown of the log of a step that failed: as on KFP 2.0.5 with Argo 3.7."""

from __future__ import annotations

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


def test_panic_of_the_launcher_is_one_line_with_its_cause():
    (line,) = argo.last_lines(PANIC)
    assert "ML Metadata cannot be reached. Run again" in line
    assert argo.last_lines(f"trained\n{PANIC}") == [line]


def test_reason_of_the_launcher_is_all_that_is_shown():
    (line,) = argo.last_lines(UPLOAD)
    reason = "unable to upload: dial tcp 10.96.0.9:9000: connect: connection refused"
    assert line.startswith(f"KFP's launcher failed: {reason}. Run again")


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
    assert pod in argo.pods(task.container)
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

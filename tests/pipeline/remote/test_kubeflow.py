"""Runs on Kubeflow Pipelines: requests, failures, and what a watch shows."""

from __future__ import annotations

import os

import pytest

from strategos.components import events
from strategos.components.errors import UserError
from strategos.pipeline.remote import kubeflow, watch
from strategos.pipeline.remote.kubeflow_api import Api
from strategos.pipeline.remote.retries import Retries

FAILED = {
    "phase": "Failed",
    "nodes": {"Resolve": "Succeeded", "Trainer": ("Failed", "Error (exit code 1)")},
}


@pytest.fixture
def service(kfp, configured, clock):
    config = configured(kfp.url, service_account="strategos")
    retries = Retries(clock=clock, sleep=clock.sleep)
    return kubeflow.KubeflowPipelines(config, Api(config, kfp.url), retries=retries)


def follow(service, clock, tmp_path):
    """Follows the run r1; returns the run and the events."""
    events.open_sink(str(tmp_path / "events"))
    try:
        run = watch.follow(
            service, "r1", runner="kubeflow", clock=clock, sleep=clock.sleep
        )
    finally:
        events.open_sink(None)
    return run, events.NewEvents(tmp_path / "events").read()


def test_a_run_is_created_in_the_experiment_of_its_pipeline(service, kfp, compiled):
    assert service.submit(compiled, "flights") == "r1"
    assert service.submit(compiled, "flights") == "r2"
    assert [each["display_name"] for each in kfp.experiments] == ["flights"]
    run = kfp.runs["r1"]
    assert run["service_account"] == "strategos"
    assert run["pipeline_spec"]["pipeline_spec"]["pipelineInfo"]["name"] == "flights"
    assert run["pipeline_spec"]["platform_spec"] == {"platforms": {"kubernetes": {}}}
    assert run["runtime_config"]["pipeline_root"] == "minio://mlpipeline/v2/artifacts"


@pytest.mark.parametrize(
    ("status", "waits", "expected"),
    [
        (400, [], "it answers 400: not today"),
        (401, [], "STRATEGOS_KFP_TOKEN"),
        (403, [], "Give the account of the token the right"),
        (404, [], "kubeflow.endpoint"),
        (500, [], "it answers 500: not today"),  # the run may exist
        (0, [], "cannot be reached"),  # the same
        (302, [], "it asks to log in elsewhere"),
        (429, [1.0], ""),
    ],
)
def test_a_rejected_creation_is_one_message_and_sent_again_only_if_nothing_was_made(
    service, kfp, compiled, clock, status, waits, expected
):
    kfp.fails["POST /apis/v2beta1/runs"] = [status]
    if expected:
        with pytest.raises(UserError) as caught:
            service.submit(compiled, "flights")
        assert expected in str(caught.value)
        assert f"Kubeflow Pipelines at {kfp.url}: " in str(caught.value)
    else:
        assert service.submit(compiled, "flights") == "r1"
    assert clock.slept == waits


def test_reads_are_sent_again_for_a_minute(service, kfp, compiled, clock):
    kfp.fails["GET /apis/v2beta1/experiments"] = [500, 0, 429, 503]
    assert service.submit(compiled, "flights") == "r1"
    assert clock.slept == [1, 2, 4, 8]
    kfp.fails["GET /apis/v2beta1/experiments"] = [503] * 9
    with pytest.raises(UserError, match="it answers 503"):
        service.submit(compiled, "flights")
    assert clock.slept == [1, 2, 4, 8, 1, 2, 4, 8, 16]


def test_an_experiment_that_another_client_makes_meanwhile_is_used(
    service, kfp, compiled
):
    kfp.experiments.append({"display_name": "flights", "experiment_id": "e7"})
    answer, hidden = kfp.get_experiments, [1]
    kfp.get_experiments = lambda *given: (
        (200, {}) if hidden and hidden.pop() else answer(*given)
    )
    service.submit(compiled, "flights")
    assert kfp.runs["r1"]["experiment_id"] == "e7"


def test_a_refused_connection_is_reported_and_tried_again(configured, clock, compiled):
    config = configured("http://127.0.0.1:1")
    retries = Retries(clock=clock, sleep=clock.sleep)
    service = kubeflow.KubeflowPipelines(
        config, Api(config, "http://127.0.0.1:1"), "", retries
    )
    with pytest.raises(UserError, match=r"cannot be reached: .*refused") as caught:
        service.submit(compiled, "flights")
    assert "object at" not in str(caught.value)
    assert len(clock.slept) == 5
    with pytest.raises(UserError, match="cannot be reached"):
        service.check()
    assert len(clock.slept) == 5  # a check asks once


def test_an_answer_that_does_not_come_is_given_up(kfp, configured):
    import threading

    config, hangs = configured(kfp.url), threading.Event()
    kfp.get_healthz = lambda *given: (hangs.wait(60) and 200, {})
    api = Api(config, kfp.url, timeouts=(5, 0.05))
    with pytest.raises(UserError, match=r"longer than 0.05 s"):
        kubeflow.KubeflowPipelines(config, api).check()
    hangs.set()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, {}), "it answers /healthz with 404"),
        ((200, "<html>"), "it answers with text/plain"),
        ((200, []), "it answers with application/json"),
    ],
)
def test_an_endpoint_that_is_not_kfp_is_rejected_as_bad_input(
    service, kfp, answer, why
):
    kfp.get_healthz = lambda *given: answer
    with pytest.raises(UserError) as caught:
        service.check()
    assert caught.value.exit_code == 2
    assert f"cluster.yaml:2:13: kubeflow.endpoint: received {kfp.url}" in str(
        caught.value
    )
    assert why in str(caught.value)


def test_a_kfp_of_several_users_needs_a_namespace(service, kfp, configured):
    kfp.multi_user = True
    with pytest.raises(UserError, match=r"kubeflow.namespace: is missing"):
        service.check()
    config = configured(kfp.url, namespace="team")
    kubeflow.KubeflowPipelines(config, Api(config, kfp.url)).check()


def test_tokens_come_from_the_environment_only(kfp, configured, tmp_path):
    config = configured(kfp.url)
    kubeflow.connect(config, {}).check()
    kubeflow.connect(config, {"STRATEGOS_KFP_TOKEN": "secret"}).check()
    file = tmp_path / "token"
    file.write_text("from a file\n")
    service = kubeflow.connect(config, {"KF_PIPELINES_SA_TOKEN_PATH": str(file)})
    service.check()
    file.write_text("renewed\n")
    service.check()
    expected = [None, *(f"Bearer {t}" for t in ("secret", "from a file", "renewed"))]
    assert kfp.tokens == expected


def test_a_watch_reports_each_change_with_the_cluster_s_times(
    service, kfp, compiled, clock, tmp_path
):
    service.submit(compiled, "flights")
    pulling = ("Pending", "ImagePullBackOff: no such image")
    kfp.story = [
        {},
        {"nodes": {"Resolve": "Running"}},
        {"nodes": {"Resolve": "Succeeded", "Trainer": pulling}},
        FAILED,
    ]
    run, seen = follow(service, clock, tmp_path)
    assert [(e["event"], e.get("node")) for e in seen] == [
        ("run_started", None),
        ("node_started", "Resolve"),
        ("node_started", "Trainer"),
        ("node_finished", "Resolve"),
        ("progress", "Trainer"),
        ("node_failed", "Trainer"),
    ]
    assert seen[0]["nodes"] == ["Resolve", "Trainer"]
    assert seen[3]["seconds"] == 20.0
    assert seen[4]["message"] == "ImagePullBackOff: no such image"
    assert clock.slept == [3, 3, 3]
    assert (run.state, run.failed_node) == ("failed", "Trainer")


@pytest.mark.parametrize("has_workflows", [True, False])
def test_a_step_whose_outputs_are_reused_is_cached(
    service, kfp, compiled, clock, tmp_path, has_workflows
):
    """Without the workflow, KFP's API cannot show it."""
    kfp.has_workflows = has_workflows
    service.submit(compiled, "flights")
    kfp.story = [kfp.done]
    run, _ = follow(service, clock, tmp_path)
    last = "cached" if has_workflows else "complete"
    assert {n: t.state for n, t in run.tasks.items()} == {
        "Resolve": "complete",
        "Trainer": last,
    }


def test_a_watch_outlives_a_restart_of_the_api(service, kfp, compiled, clock, tmp_path):
    service.submit(compiled, "flights")
    kfp.story = [kfp.done]
    kfp.fails["GET /apis/v2beta1/runs/r1"] = [0, 503, 500, 429]
    run, seen = follow(service, clock, tmp_path)
    assert run.state == "succeeded"
    warnings = [e["message"] for e in seen if e["event"] == "warning"]
    assert len(warnings) == 4
    assert "503" in warnings[1] and warnings[1].endswith("asking again")
    assert clock.slept == [1, 2, 4, 8]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_watch_ends_at_once_if_its_requests_are_rejected(
    service, kfp, compiled, clock, tmp_path, status
):
    service.submit(compiled, "flights")
    kfp.fails["GET /apis/v2beta1/runs/r1"] = [status]
    with pytest.raises(UserError, match=f"answers {status}"):
        follow(service, clock, tmp_path)
    assert clock.slept == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_run_that_is_terminated_has_not_failed(
    service, kfp, compiled, clock, tmp_path, goes_on
):
    """KFP 2.0.5 reports FAILED, and steps that exceeded their deadline."""
    kfp.goes_on = goes_on
    service.submit(compiled, "flights")
    kfp.fails["POST /apis/v2beta1/runs/r1:terminate"] = [500]
    service.terminate("r1")  # may be sent twice
    run, _ = follow(service, clock, tmp_path)
    assert (run.state, run.failed_node) == ("canceled", "")
    trainer = run.tasks["Trainer"]
    assert (trainer.state, trainer.message) == ("interrupted", "terminated")


def test_the_view_has_the_epochs_of_the_trainer_from_its_log(
    service, kfp, compiled, clock, tmp_path
):
    service.submit(compiled, "flights")
    running = {"nodes": {"Resolve": "Succeeded", "Trainer": "Running"}}
    kfp.story = [running] * 6 + [kfp.done]
    epoch = "progress: epoch 1/5  step 3/14  loss 0.5000"
    kfp.logs["w-system-container-impl-11"] = f"other\n{epoch}\nother\n"
    _, seen = follow(service, clock, tmp_path)
    shown = [e["message"] for e in seen if e["event"] == "progress"]
    assert shown == ["epoch 1/5  step 3/14  loss 0.5000"]
    asked = [path for path in kfp.requests("GET") if path.endswith("/log")]
    assert len(asked) == 2  # in 18 seconds


_KUBECONFIG = """
apiVersion: v1
clusters: [{{name: c, cluster: {{server: '{url}'}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{token: t}}}}]
current-context: c
"""


def test_a_log_that_kfp_does_not_give_is_read_from_kubernetes(
    service, kfp, configured, compiled, clock, tmp_path, monkeypatch
):
    service.submit(compiled, "flights")
    kfp.story = [FAILED]
    run, _ = follow(service, clock, tmp_path)
    assert service.log(run, "Trainer").lines == ()
    (tmp_path / "kubeconfig").write_text(_KUBECONFIG.format(url=kfp.url))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    service = kubeflow.connect(configured(kfp.url), os.environ)
    assert service.log(run, "Trainer").lines == ()
    kfp.pods["w-system-container-impl-11"] = kfp.log
    found = service.log(run, "Trainer")
    assert found.lines == ("EvaluationGate: not blessed: 1 of 2 bounds fails",)
    assert found.exit_code == 3

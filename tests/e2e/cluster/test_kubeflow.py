"""The flights on a real Kubeflow Pipelines, under the rights of kubeflow/manifests.

Each run takes minutes, so the tests build on each other.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

KUBEFLOW = Path(__file__).parents[3] / "kubeflow"
README = KUBEFLOW / "README.md"
NOT_KFP = "http://10.250.0.1:9000"  # the object store
RETRAINED = {
    *("Trainer", "BaselineModel", "Evaluator", "EvaluationGate"),
    *("InfraValidator", "Pusher", "RunReport", "ModelReport"),
}
HYPERPARAMETER = ("--set", "trainer.epochs=1")
WORKERS = ("--overlay", KUBEFLOW / "overlays" / "workers.yaml")
# Two workers, which wait in the middle of their training.
PAUSED = (
    *WORKERS,
    *("--set", "trainer.module=paused"),
    *("--set", "trainer.distribution.stall_timeout=1h", "--set"),
)
RESTARTED = "restarted"
# Python needs more for what it imports.
SMALL_REPORT = ("--set", "kubeflow.steps.RunReport.memory=48Mi")
# Without workers: their pods fit no node.
WAITING = (*WORKERS, "--set", 'trainer.distribution.tfjob.cpu="1000"')
# Of the first run; later ones take its artifacts from the cache.
ENGINE = ("--set", "run.engine.runner=portable", "--set")
ENDPOINT = "run.engine.options.job_endpoint"
ENDED = ("Succeeded", "Failed")


def wait_for(look, seconds=600):
    """Returns what `look()` does as soon as that is true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until
        time.sleep(1)
    return found


def wait_for_text(log, pattern):
    """Waits until a line of a command's output matches."""
    wait_for(lambda: re.search(pattern, log.read_text()))


def submitted(log):
    """The id of the run in the output of a command; "" if there is none yet."""
    found = re.search(r"^run (\S+) submitted", log.read_text(), re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture(autouse=True)
def said(pipelines):
    """With a test that fails, what the runs said that were followed."""
    yield
    for log in pipelines.logs:
        print(f"{log}:\n{log.read_text()}")


def test_an_endpoint_that_is_not_kfp_is_one_message(pipelines):
    wrong = f"kubeflow.endpoint={NOT_KFP}"
    _, said = pipelines.run("--set", wrong, expect=2)
    assert "this is not the API of Kubeflow Pipelines 2" in said
    assert NOT_KFP in said


def test_flights_run_to_a_pushed_model_that_equals_the_local_one(
    pipelines, start_local, tmp_path
):
    local = start_local()  # beside: most steps on the cluster leave a core idle
    endpoint = pipelines.start_job_server()
    states, said = pipelines.run("--wait", *ENGINE, f"{ENDPOINT}={endpoint}")
    log = pipelines.stop_job_server()
    # Of two splits each; other work has one shard, and sends no job.
    assert log.count("Completed job") == 2, log
    assert set(states.values()) == {"ran"}
    assert states.keys() >= {"Resolve", "ExampleGen", "Transform", *RETRAINED}
    (version,) = pipelines.pushed(tmp_path)
    pipelines.assert_equal(version, local())
    assert_table_of_a_local_run(said, version)
    run_id = re.search(r"^run (\S+) submitted", said, re.MULTILINE)[1]
    logs = [log for _, log in pipelines.pods(run_id)]
    assert any("progress: epoch 1/" in log for log in logs)
    assert not any("do: inputs" in log for log in logs)
    pipelines.assert_shown(run_id, version)


def assert_table_of_a_local_run(said, version):
    """As the steps have recorded it; `kubeflow.metadata` is not set."""
    for part in ("verdict +blessed", f"pushed +s3://models/model/{version.name}"):
        assert re.search(part, said), said
    assert re.search(r"ExampleGen .*\d rows", said), said
    assert re.search(r"^ +auc ", said, re.MULTILINE), said


@pytest.fixture(scope="module")
def changed(pipelines, start_local, tmp_path_factory):
    """A run with another hyperparameter: its process, its log, and the local run."""
    log = tmp_path_factory.mktemp("changed") / "log"
    watch = pipelines.watch(log, *HYPERPARAMETER)
    yield watch, log, start_local(*HYPERPARAMETER)
    watch.kill()


@pytest.fixture(scope="module")
def unstartable(pipelines, tmp_path_factory):
    """Runs whose pods cannot start: of each its process, its log, and the reason."""
    wrong = {
        "kubeflow.image=registry.example.com/absent:1": "ErrImagePull|ImagePullBack",
        'kubeflow.steps={Resolve: {cpu: "1000"}}': "Unschedulable|Insufficient cpu",
    }
    logs = [tmp_path_factory.mktemp("unstartable") / "log" for _ in wrong]
    watches = list(map(pipelines.watch, logs, ["--set"] * len(wrong), wrong))
    yield list(zip(watches, logs, wrong.values(), strict=True))
    for watch in watches:
        watch.kill()


@pytest.fixture(scope="module")
def follow(pipelines, tmp_path_factory):
    """Starts a run and follows it: `follow(*options)`; its process and its log."""
    watches = []

    def start(*options):
        log = tmp_path_factory.mktemp("followed") / "log"
        watches.append(pipelines.watch(log, *options))
        return watches[-1], log

    yield start
    for watch in watches:
        watch.kill()


@pytest.fixture(scope="module")
def restarted(follow):
    """A run whose Trainer's pod is lost, twice, and that of its report in the end."""
    return follow(*PAUSED, f"pusher.to=s3://models/{RESTARTED}", *SMALL_REPORT)


@pytest.fixture(scope="module")
def limited(follow):
    """A run whose Trainer has too little time."""
    return follow(*PAUSED, "trainer.seed=2")


@pytest.fixture(scope="module")
def terminated(follow):
    """A run that is terminated while its Trainer waits for pods."""
    return follow(*WAITING)


@pytest.fixture(scope="module")
def faulty(follow):
    """A run whose first step finds no data."""
    return follow("--set", "data.examples=s3://models/none/span-{SPAN}/*.csv")


# Beside the changed run, which pushes later, and runs that wait until their test.
def test_run_on_another_engine_takes_all_but_its_settings_from_the_cache(
    pipelines, changed, unstartable, tmp_path
):
    states, _ = pipelines.run("--wait")
    ran = {name for name, state in states.items() if state == "ran"}
    assert ran == {"Resolve", "RunReport", "ModelReport"}
    assert len(pipelines.pushed(tmp_path)) == 1


def test_outages_begin_while_a_run_retrains(pipelines, changed):
    watch, log, _ = changed
    wait_for_text(log, "Trainer +started")
    assert watch.poll() is None
    for port in (pipelines.METADATA_PORT, pipelines.OBJECTS_PORT):
        pipelines.refuse(port)


@pytest.fixture(scope="module")
def retrained(pipelines, changed, tmp_path_factory):
    """The changed run and, if an outage ended it, the same again: process and log."""
    watch, log, _ = changed
    runs = [(watch, log)]
    if watch.wait(600):  # KFP's own programs try once
        assert re.search("KFP's (driver|launcher) .* Run again", log.read_text())
        again = tmp_path_factory.mktemp("again") / "log"
        runs.append((pipelines.watch(again, *HYPERPARAMETER), again))
    yield runs
    runs[-1][0].kill()


def training_of(pipelines, log):
    """Waits for a run to train: its `Training`, with name and id of its TFJob."""
    training = pipelines.training(wait_for(lambda: submitted(log)))
    wait_for_text(log, "Trainer +started")
    return training, one_job(training)


def one_job(training):
    """Waits for the TFJob of a run; its name and its id."""
    ((name, uid),) = wait_for(training.jobs)
    return name, uid


def wait_for_pause(training, job):
    """Waits until both tasks of a TFJob wait in the middle of their training."""
    wait_for(lambda: len(training.paused(job)) >= 2)


# Beside the run that retrains.
def test_step_whose_pod_was_lost_starts_again_and_trains_on(
    pipelines, restarted, limited, terminated, faulty, retrained
):
    _, log = restarted
    training, job = training_of(pipelines, log)
    wait_for_pause(training, job[0])
    training.kill_step()  # cleans up nothing
    wait_for_text(log, r"Trainer +started again after main: Error \(exit code 137\)")
    joined = f"joining Kubernetes job {job[0]}: running"
    wait_for(lambda: any(joined in log for _, log in pipelines.pods(submitted(log))))
    assert one_job(training) == job
    wait_for(lambda: training.owners() == [training.step()])
    training.delete_step()  # ends its TFJob
    wait_for(lambda: job not in map(tuple, training.jobs()))
    following, _ = one_job(training)
    wait_for_pause(training, following)
    training.resume(following)
    wait_for_text(log, "Trainer +complete")
    assert training.jobs() == []


def test_step_whose_time_is_up_ends_its_training_and_is_not_started_again(
    pipelines, limited
):
    watch, log = limited
    training, (job, _) = training_of(pipelines, log)
    wait_for_pause(training, job)
    training.end_time_of_step()
    assert watch.wait(300) == 1
    said = log.read_text()
    assert "Trainer" in said and "longer than the specified deadline" in said
    assert "started again" not in said
    wait_for(lambda: not training.jobs(), seconds=60)


def test_terminated_run_ends_its_training_and_starts_no_step_again(
    pipelines, terminated
):
    watch, log = terminated
    training, _ = training_of(pipelines, log)
    pipelines.terminate(submitted(log))
    assert watch.wait(300) == 1
    assert "terminated" in log.read_text() and "started again" not in log.read_text()
    wait_for(lambda: not training.jobs(), seconds=60)
    phases = {phase for phase, _ in pipelines.pods(submitted(log))}
    assert phases <= {*ENDED}


def test_step_that_fails_by_itself_is_not_started_again(pipelines, faulty):
    watch, log = faulty
    assert watch.wait(300) == 1
    said = log.read_text()
    assert "Resolve" in said and "s3://models/none" in said
    assert "started again" not in said
    logs = [log for _, log in pipelines.pods(submitted(log))]
    assert sum("matches no object" in each for each in logs) == 1


def test_changed_hyperparameter_re_runs_the_trainer_and_what_follows(
    pipelines, changed, retrained, tmp_path
):
    _, _, local = changed
    assert retrained[-1][0].wait(600) == 0, retrained[-1][1].read_text()
    tables = [pipelines.states(log.read_text()) for _, log in retrained]
    ran = {name for table in tables for name in table if table[name] == "ran"}
    assert ran == {"Resolve", *RETRAINED}
    first, second = pipelines.pushed(tmp_path)
    assert pipelines.metrics_of(first) != pipelines.metrics_of(second)
    pipelines.assert_equal(second, local())
    assert_table_of_a_local_run(retrained[-1][1].read_text(), second)


def test_model_of_the_step_that_started_again_equals_the_undisturbed_one(
    pipelines, restarted, tmp_path
):
    watch, log = restarted
    assert watch.wait(600) == 0, log.read_text()
    assert re.search(r"RunReport .*failed", log.read_text())
    assert pipelines.pages(submitted(log)).keys() == {"ModelReport"}
    undisturbed, _ = pipelines.pushed(tmp_path)
    (version,) = pipelines.pushed(tmp_path, RESTARTED)
    expected = pipelines.metrics_of(undisturbed), undisturbed
    pipelines.assert_equal(version, expected, within=1e-5)


def test_runs_are_read_from_the_metadata_of_kfp(pipelines, tmp_path):
    listed = pipelines.history("runs")
    assert "blessed" in listed
    for version in pipelines.pushed(tmp_path):
        led = pipelines.history("lineage", version.name)
        assert version.name in led and "ExampleGen" in led
        run_id = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", led)[0]
        assert run_id[:8] in listed
        assert version.name in pipelines.history("runs", "show", run_id)


def test_runs_are_compared_and_explained_by_what_their_steps_recorded(
    pipelines, retrained, tmp_path
):
    first, second = (each.name for each in pipelines.pushed(tmp_path))
    listed = json.loads(pipelines.recorded("runs", "--json"))
    ids = {each["pushed"][1]: each["run_id"] for each in listed if each["pushed"]}
    assert ids[second] == submitted(retrained[-1][1])
    compare = ("runs", "compare", ids[first], ids[second], "--json")
    found = json.loads(pipelines.recorded(*compare))
    changed = {each["name"]: each["after"] for each in found["settings"]}
    assert changed.pop("trainer.epochs") == 1
    assert all(name.startswith("run.engine.") for name in changed)
    assert found["code"] == found["data"] == found["stack"] == []
    texts = [pipelines.reasons(submitted(log)) for _, log in retrained]
    assert texts[-1]["Transform"] == f"nothing changed since run {ids[first]}"
    trained = [each["Trainer"] for each in texts if "Trainer" in each]
    assert re.fullmatch("epochs .* → 1.*", trained[0])
    evaluated = texts[-1]["Evaluator"]
    assert "Trainer" in evaluated or len(texts) > 1  # after an outage, from the cache


def test_recurring_run_reads_a_new_span_and_is_terminated(pipelines, flights_data):
    pipelines.upload(flights_data / "span-12", "data/span-13")
    options = ("--target", "kubeflow", "--set", "schedule.cron='* * * * *'")
    created = pipelines.call("schedule", "create", "--", *options)
    schedule = re.search(r"^created (\S+)", created, re.MULTILINE)[1]
    assert schedule in pipelines.call("schedule", "list", "--", *options)
    run_id = wait_for(lambda: pipelines.runs(schedule))[-1]

    def resolved():
        logs = (log for _, log in pipelines.pods(run_id))
        return next((found for log in logs if "\nspans: " in (found := log)), "")

    log = wait_for(resolved)
    (line,) = (each for each in log.splitlines() if each.startswith("spans: "))
    spans = json.loads(line.removeprefix("spans: "))
    assert [number for number, _ in spans] == list(range(1, 14))
    pipelines.terminate(run_id)
    said = pipelines.call(
        "run", "--", "--runner", "kubeflow", "--follow", run_id, expect=1
    )
    assert "terminated" in said
    # Not earlier: Kubernetes deletes the runs of a schedule with it.
    deleted = pipelines.call("schedule", "delete", "--", *options)
    assert schedule in deleted
    wait_for(lambda: {phase for phase, _ in pipelines.pods(run_id)} <= {*ENDED})


def test_pods_that_cannot_start_are_reported_with_the_reason(pipelines, unstartable):
    for _, log, reason in unstartable:
        wait_for_text(log, reason)
        pipelines.terminate(submitted(log))
    for watch, log, _ in unstartable:
        assert watch.wait(300) == 1
        assert "terminated" in log.read_text()  # not: failed


def test_manifests_are_applied_by_the_command_of_the_operators_page(cluster):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing: apt-get install kubernetes-client")
    page = README.read_text()
    (command,) = re.findall("^kubectl apply .*", page, re.MULTILINE)
    words = command.replace("NAMESPACE", "operator").split()
    words[-1] = KUBEFLOW.parent / words[-1]
    assert cluster.call("run", "kubectl", "create", "namespace", "operator")
    done = cluster.call("run", *words)
    assert done.returncode == 0, done.stderr
    created = {line.split()[0] for line in done.stdout.splitlines()}
    kinds = ("rolebinding", "role", "serviceaccount", "networkpolicy", "persistentvol")
    assert all(any(name.startswith(kind) for name in created) for kind in kinds)
    again = cluster.call("run", *words)
    assert set(again.stdout.split()) - {"unchanged", "configured"} == created


# The last test. `image build` takes minutes and is tested with a small image.
def test_all_commands_of_the_operators_page_were_called(pipelines, tmp_path):
    pipelines.call("compile", "--", "--target", "kubeflow", "-o", tmp_path / "spec")
    assert "Resolve" in (tmp_path / "spec").read_text()
    commands = r"^ *strategos ((?:image|schedule) [a-z]+|runs show|[a-z]+)"
    page = re.findall(commands, README.read_text(), re.MULTILINE)
    named = {tuple(words.split()) for words in page}
    assert named - {("image", "build")} == pipelines.called

"""The flights on a real Kubeflow Pipelines, under the rights of kubeflow/manifests.

Each run takes minutes, so the tests build on each other.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

OVERLAY = Path(__file__).parents[3] / "kubeflow" / "overlays" / "local.yaml"
NOT_KFP = "http://10.250.0.1:9000"  # the object store
RETRAINED = {
    *("Trainer", "BaselineModel", "Evaluator", "EvaluationGate"),
    *("InfraValidator", "Pusher"),
}
ENDED = ("Succeeded", "Failed")

DOWNLOAD = """
import json, sys
from pathlib import Path
import boto3

folder, names = Path(sys.argv[1]), []
keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "minio123")
url = "http://10.250.0.1:9000"
bucket = boto3.resource("s3", "us-east-1", endpoint_url=url, **keys).Bucket("models")
for found in bucket.objects.filter(Prefix="model/"):
    file = folder / found.key
    names.append(file.relative_to(folder / "model").parts[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    bucket.download_file(found.key, str(file))
print(json.dumps(sorted({name for name in names if name.isdigit()})))
"""
RUNS = """
import json, sys
import requests

url = "http://10.96.0.20:8888/apis/v2beta1/runs"
query = {"page_size": 100, "sort_by": "created_at desc"}
runs = requests.get(url, query, timeout=30).json().get("runs", [])
ids = [run["run_id"] for run in runs if run.get("recurring_run_id") == sys.argv[1]]
print(json.dumps(ids))
"""
PODS = """
import json, sys
from kubernetes import client, config

config.load_kube_config()
api, of = client.CoreV1Api(), "kubeflow"
label = f"pipeline/runid={sys.argv[1]}"
pods = api.list_namespaced_pod(of, label_selector=label).items

def log(pod):
    try:
        name = pod.metadata.name
        return api.read_namespaced_pod_log(name, of, container="main")
    except client.ApiException:
        return ""

print(json.dumps([[pod.status.phase, log(pod)] for pod in pods]))
"""


class Pipelines:
    """A workspace on the cluster's volume, and the commands that run it there."""

    def __init__(self, cluster, workspace):
        self.cluster, self.workspace = cluster, workspace
        volume = {"claim": "serving", "path": str(cluster.volume)}
        settings = (
            *workspace.settings,
            f"kubeflow.volumes={json.dumps([volume])}",
            f"kubeflow.context={cluster.volume}",
        )
        self._sets = [word for each in settings for word in ("--set", each)]

    def command(self, *words):
        """`strategos WORDS` with the workspace's file, in the cluster's network."""
        at = words.index("--") if "--" in words else len(words)
        options = ["--overlay", OVERLAY, *self._sets, *words[at + 1 :]]
        program = [sys.executable, "-m", "strategos.pipeline.cli", *words[:at]]
        return self.cluster.command("run", *program, self.workspace.yaml, *options)

    def call(self, *words, expect=0):
        done = subprocess.run(
            self.command(*words),
            env=self.cluster.environment,
            capture_output=True,
            text=True,
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == expect, said
        assert "Traceback" not in said
        return said

    def run(self, *options, expect=0):
        """Runs the pipeline; the state of each step in the table, and what was said."""
        words = ("run", "--", "--runner", "kubeflow", *options)
        said = self.call(*words, expect=expect)
        rows = re.findall(r"^  \S  (\w+) +(cached|[\d.]+ s|\S+)", said, re.MULTILINE)
        return {name: "cached" if s == "cached" else "ran" for name, s in rows}, said

    def watch(self, log, *options):
        """Starts a run and follows it; what it says goes to `log`."""
        with log.open("w") as out:
            words = ("run", "--", "--runner", "kubeflow", "--wait", *options)
            return subprocess.Popen(
                self.command(*words),
                env=self.cluster.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def terminate(self, run_id):
        self.call("run", "--", "--runner", "kubeflow", "--terminate", run_id)

    def pushed(self, folder):
        """Downloads the pushed versions; their folders, oldest first."""
        versions = self.cluster.python(DOWNLOAD, str(folder))
        return [folder / "model" / version for version in versions]

    def pods(self, run_id):
        """Phase and log of each pod of a run."""
        return self.cluster.python(PODS, run_id)


@pytest.fixture(scope="module")
def pipelines(cluster, copy_flights):
    return Pipelines(cluster, copy_flights(cluster.volume / "checkout"))


@pytest.fixture(scope="module")
def start_local(copy_flights, tmp_path_factory):
    """Starts the same run on this machine; a function that waits for its end.

    That returns the metrics and the folder of the pushed version.
    """
    workspace = copy_flights(tmp_path_factory.mktemp("local"))

    def start():
        command = workspace.command("run", str(workspace.yaml), *workspace.sets())
        started = subprocess.Popen(
            command, env=workspace.cold_environment(), stdout=subprocess.DEVNULL
        )

        def ended():
            assert started.wait(600) == 0
            (folder,) = (workspace.folder / "serving").iterdir()
            (version,) = folder.iterdir()
            return workspace.last_run()["metrics"], version

        return ended

    return start


def wait_for(look, seconds=600):
    """Returns what `look()` does as soon as that is true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until
        time.sleep(1)
    return found


def submitted(log):
    """The id of the run in the output of a command; "" if there is none yet."""
    found = re.search(r"^run (\S+) submitted", log.read_text(), re.MULTILINE)
    return found[1] if found else ""


def metrics_of(version):
    manifest = (version / "assets.extra" / "manifest.json").read_text()
    return json.loads(manifest)["metrics"]


def variables_of(version):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{version}/variables/variables")
    names = sorted(reader.get_variable_to_shape_map())
    values = {n: reader.get_tensor(n) for n in names if "VARIABLE_VALUE" in n}
    return {name: value for name, value in values.items() if value.dtype != object}


def test_an_endpoint_that_is_not_kfp_is_one_message(pipelines):
    wrong = f"kubeflow.endpoint={NOT_KFP}"
    _, said = pipelines.run("--set", wrong, expect=2)
    assert "which is not the API of Kubeflow Pipelines 2" in said
    assert NOT_KFP in said


def test_flights_run_to_a_pushed_model_that_equals_the_local_one(
    pipelines, start_local, tmp_path
):
    local = start_local()  # beside: most steps on the cluster leave a core idle
    states, _ = pipelines.run("--wait")
    assert set(states.values()) == {"ran"}
    assert states.keys() >= {"Resolve", "ExampleGen", "Transform", *RETRAINED}
    metrics, folder = local()
    (version,) = pipelines.pushed(tmp_path)
    assert metrics_of(version) == pytest.approx(metrics, abs=1e-6)
    found, expected = variables_of(version), variables_of(folder)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_unchanged_run_takes_all_but_its_first_step_from_the_cache(pipelines, tmp_path):
    states, _ = pipelines.run("--wait")
    assert states.pop("Resolve") == "ran"
    assert set(states.values()) == {"cached"}
    assert len(pipelines.pushed(tmp_path)) == 1


def test_changed_hyperparameter_re_runs_the_trainer_and_what_follows(
    pipelines, tmp_path
):
    states, _ = pipelines.run("--wait", "--set", "trainer.epochs=1")
    ran = {name for name, state in states.items() if state == "ran"}
    assert ran == {"Resolve", *RETRAINED}
    first, second = map(metrics_of, pipelines.pushed(tmp_path))
    assert first != second


def test_recurring_run_reads_a_new_span_and_is_terminated(pipelines):
    months = pipelines.workspace.folder / "data"
    shutil.copytree(months / "span-12", months / "span-13")
    options = ("--target", "kubeflow", "--set", "schedule.cron='* * * * *'")
    created = pipelines.call("schedule", "create", "--", *options)
    schedule = re.search(r"^created (\S+)", created, re.MULTILINE)[1]
    run_id = wait_for(lambda: pipelines.cluster.python(RUNS, schedule))[-1]

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


@pytest.mark.parametrize(
    "setting, reason",
    [
        ("kubeflow.image=registry.example.com/absent:1", r"ErrImagePull|ImagePullBack"),
        ('kubeflow.steps={Resolve: {cpu: "1000"}}', "Unschedulable|Insufficient cpu"),
    ],
    ids=["image", "cpu"],
)
def test_pod_that_cannot_start_is_reported_with_the_reason(
    pipelines, tmp_path, setting, reason
):
    log = tmp_path / "log"
    watch = pipelines.watch(log, "--set", setting)
    try:
        wait_for(lambda: re.search(reason, log.read_text()))
        pipelines.terminate(submitted(log))
        assert watch.wait(300) == 1
    finally:
        watch.kill()
    assert "terminated" in log.read_text()  # not: failed

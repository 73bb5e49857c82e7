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

OVERLAY = Path(__file__).parents[3] / "kubeflow" / "overlays" / "local.yaml"
CLI = [sys.executable, "-m", "strategos.pipeline.cli"]
KFP_METADATA = "grpc://10.250.0.1:8080"
GONE = 20.0  # seconds

# As in the Secret `object-store`.
STORE = {
    "AWS_ACCESS_KEY_ID": "minio",
    "AWS_SECRET_ACCESS_KEY": "minio123",
    "AWS_REGION": "us-east-1",
    "S3_ENDPOINT": "http://10.250.0.1:9000",
}
BUCKET = """
import json, sys
from pathlib import Path
import boto3

keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "minio123")
url = "http://10.250.0.1:9000"
bucket = boto3.resource("s3", "us-east-1", endpoint_url=url, **keys).Bucket("models")
"""
UPLOAD = """
folder = Path(sys.argv[1])
for file in filter(Path.is_file, folder.rglob("*")):
    bucket.upload_file(str(file), f"{sys.argv[2]}/{file.relative_to(folder)}")
print("null")
"""
DOWNLOAD = """
folder, names = Path(sys.argv[1]), []
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
# Deletes the pod of the step whose TFJob trains, once both pods of that run.
DELETE_STEP = """
import time
from kubernetes import client, config

config.load_kube_config()
core, of = client.CoreV1Api(), "kubeflow"
label, until = "training.kubeflow.org/job-name", time.monotonic() + 600
while True:
    pods = core.list_namespaced_pod(of, label_selector=label).items
    if [pod.status.phase for pod in pods] == ["Running"] * 2:
        break
    assert time.monotonic() < until, [pod.status for pod in pods]
    time.sleep(0.5)
jobs = "kubeflow.org", "v1", of, "tfjobs", pods[0].metadata.labels[label]
job = client.CustomObjectsApi().get_namespaced_custom_object(*jobs)
(step,) = (owner["name"] for owner in job["metadata"]["ownerReferences"])
core.delete_namespaced_pod(step, of)
print("null")
"""
TRAININGS = """
import json
from kubernetes import client, config

config.load_kube_config()
of = "kubeflow"
jobs = client.CustomObjectsApi().list_namespaced_custom_object(
    "kubeflow.org", "v1", of, "tfjobs"
)
label = "training.kubeflow.org/job-name"
pods = client.CoreV1Api().list_namespaced_pod(of, label_selector=label)
print(json.dumps(len(jobs["items"]) + len(pods.items)))
"""
# Starts a job server in a pod of the steps' image, or prints its log and ends it.
JOB_SERVER = """
import json, sys
from kubernetes import client, config

config.load_kube_config()
core, of, host, port = client.CoreV1Api(), "kubeflow", "beam-jobs", 8099
address = f"{host}.{of}:{port}"
program = "/workload/tests/e2e/beam_job_server.py"
server = {
    "name": "main",
    "image": "registry.example.com/strategos:1",
    "command": ["python", "-W", "ignore", program, "/tmp", address],
    "envFrom": [{"secretRef": {"name": "object-store"}}],
    "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
}
pod = {
    "metadata": {"name": host, "labels": {"app": host}},
    "spec": {"containers": [server], "terminationGracePeriodSeconds": 0},
}
service = {
    "metadata": {"name": host},
    "spec": {"selector": {"app": host}, "ports": [{"port": port}]},
}
if sys.argv[1] == "start":
    core.create_namespaced_service(of, service)
    core.create_namespaced_pod(of, pod)
    print(json.dumps(address))
else:
    print(json.dumps(core.read_namespaced_pod_log(host, of)))
    core.delete_namespaced_pod(host, of)
    core.delete_namespaced_service(host, of)
"""


class Pipelines:
    """A workspace, and the commands that run it on the cluster."""

    METADATA_PORT, OBJECTS_PORT = 8080, 9000

    def __init__(self, cluster, workspace, *settings):
        self.cluster, self.workspace = cluster, workspace
        pairs = (("--set", each) for each in (*workspace.settings, *settings))
        self._sets = [word for pair in pairs for word in pair]
        self.called = set()  # commands, without their arguments
        self._env = {**cluster.environment, **STORE}
        self.logs = []  # of runs that are followed

    def command(self, *words):
        """`strategos WORDS` with the workspace's file, in the cluster's network."""
        return self.cluster.command("run", *self._program(*words))

    def _program(self, *words):
        at = words.index("--") if "--" in words else len(words)
        options = ["--overlay", OVERLAY, *self._sets, *words[at + 1 :]]
        self.called.add(words[:at])
        return [*CLI, *words[:at], self.workspace.yaml, *options]

    def build(self, *options):
        """`strategos image build`, in this machine's network."""
        words = ("image", "build", "--", "--target", "kubeflow", *options)
        return self._said(self._program(*words))

    def history(self, *words):
        """`strategos WORDS` with KFP's ML Metadata as the root."""
        at = 2 if words[:2] == ("runs", "show") else 1
        self.called.add(words[:at])
        command = (*CLI, *words, "--root", KFP_METADATA)
        return self._said(self.cluster.command("run", *command))

    def call(self, *words, expect=0):
        return self._said(self.command(*words), expect)

    def _said(self, command, expect=0):
        done = subprocess.run(
            command,
            env=self._env,
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
        return self.states(said), said

    @staticmethod
    def states(said):
        """The state of each step in the table at the end: `cached`, or `ran`."""
        rows = re.findall(r"^  \S  (\w+) +(cached|[\d.]+ s|\S+)", said, re.MULTILINE)
        return {name: "cached" if s == "cached" else "ran" for name, s in rows}

    def watch(self, log, *options):
        """Starts a run and follows it; what it says goes to `log`."""
        self.logs.append(log)
        with log.open("w") as out:
            words = ("run", "--", "--runner", "kubeflow", "--wait", *options)
            return subprocess.Popen(
                self.command(*words),
                env=self._env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def refuse(self, port):
        """For some seconds, nothing connects to a server on a port."""
        rule = ("INPUT", "-p", "tcp", "--dport", port, "-j", "REJECT")
        for action, seconds in (("-I", GONE), ("-D", 0.0)):
            done = self.cluster.call("run", "iptables", action, *rule)
            assert done.returncode == 0, done.stderr
            time.sleep(seconds)

    def terminate(self, run_id):
        self.call("run", "--", "--runner", "kubeflow", "--terminate", run_id)

    def pushed(self, folder):
        """Downloads the pushed versions; their folders, oldest first."""
        versions = self.cluster.python(BUCKET + DOWNLOAD, str(folder))
        return [folder / "model" / version for version in versions]

    def upload(self, folder, key):
        """Uploads a folder to the bucket of the models, below a key."""
        self.cluster.python(BUCKET + UPLOAD, str(folder), key)

    def pods(self, run_id):
        """Phase and log of each pod of a run."""
        return self.cluster.python(PODS, run_id)

    def delete_step_that_trains(self):
        """Deletes the pod of a step once its TFJob of two workers trains."""
        self.cluster.python(DELETE_STEP)

    def start_job_server(self):
        """Starts Beam's job server in a pod; its address in the cluster."""
        return self.cluster.python(JOB_SERVER, "start")

    def stop_job_server(self):
        """Ends that job server; its log."""
        return self.cluster.python(JOB_SERVER, "stop")

    def trainings(self):
        """How many TFJobs and pods of TFJobs there are."""
        return self.cluster.python(TRAININGS)

    def runs(self, schedule):
        """Ids of the runs of a schedule, the newest first."""
        return self.cluster.python(RUNS, schedule)

    @staticmethod
    def metrics_of(version):
        """The metrics that a pushed version was judged by."""
        manifest = (version / "assets.extra" / "manifest.json").read_text()
        return json.loads(manifest)["metrics"]

    def assert_equal(self, version, local):
        """Checks a pushed version by what the wait of `start_local` returned."""
        metrics, folder = local
        assert self.metrics_of(version) == pytest.approx(metrics, abs=1e-6)
        found, expected = variables_of(version), variables_of(folder)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def variables_of(version):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{version}/variables/variables")
    names = sorted(reader.get_variable_to_shape_map())
    values = {n: reader.get_tensor(n) for n in names if "VARIABLE_VALUE" in n}
    return {name: value for name, value in values.items() if value.dtype != object}


@pytest.fixture(scope="session")
def make_pipelines():
    """Makes `Pipelines`: `make_pipelines(cluster, workspace, *settings)`."""
    return Pipelines


@pytest.fixture(scope="module")
def start_local(copy_flights, tmp_path_factory):
    """Starts the same run on this machine; a function that waits for its end.

    That returns the metrics and the folder of the pushed version.
    """
    workspace = copy_flights(tmp_path_factory.mktemp("local"))

    def start(*options):
        words = ("run", str(workspace.yaml), *workspace.sets(), *options)
        command = workspace.command(*words)
        started = subprocess.Popen(
            command, env=workspace.cold_environment(), stdout=subprocess.DEVNULL
        )

        def ended():
            assert started.wait(600) == 0
            (folder,) = (workspace.folder / "serving").iterdir()
            newest = max(folder.iterdir(), key=lambda version: int(version.name))
            return workspace.last_run()["metrics"], newest

        return ended

    return start


@pytest.fixture(scope="module")
def pipelines(cluster, copy_flights, tmp_path_factory):
    """The flights: modules, schema and data in a bucket only, nothing in the image."""
    checkout = tmp_path_factory.mktemp("checkout")
    workspace = copy_flights(checkout)
    found = Pipelines(
        cluster,
        workspace,
        f"kubeflow.context={tmp_path_factory.mktemp('nothing')}",
        "kubeflow.modules=s3://models/modules",
        "schema.file=s3://models/schemas/flights.pbtxt",
        "data.examples=s3://models/data/span-{SPAN}/*.csv",
    )
    found.upload(workspace.folder / "data", "data")
    found.upload(checkout / "schemas", "schemas")
    shutil.rmtree(workspace.folder / "data")
    return found

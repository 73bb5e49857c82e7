from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).with_name("programs")  # in the cluster's network
OVERLAY = Path(__file__).parents[3] / "kubeflow" / "overlays" / "local.yaml"
PAUSED = Path(__file__).parents[2] / "workloads" / "flights" / "paused.py"
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
folder, to, names = Path(sys.argv[1]), sys.argv[2], []
for found in bucket.objects.filter(Prefix=f"{to}/"):
    file = folder / found.key
    names.append(file.relative_to(folder / to).parts[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    bucket.download_file(found.key, str(file))
print(json.dumps(sorted({name for name in names if name.isdigit()})))
"""
# As the page of Kubeflow Pipelines finds them: by their artifacts in ML Metadata.
PAGES = """
import json, sys
import boto3
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "minio123")
s3 = boto3.client("s3", "us-east-1", endpoint_url="http://10.250.0.1:9000", **keys)
config = mlmd.MetadataStoreClientConfig(host="10.250.0.1", port=8080)
pages, store = {}, metadata_store.MetadataStore(config)
for artifact in store.get_artifacts_by_type("system.HTML"):
    if f"/{sys.argv[1]}/" in artifact.uri:
        bucket, _, key = artifact.uri.removeprefix("minio://").partition("/")
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        pages[artifact.uri.split("/")[-2]] = body.decode()
print(json.dumps(pages))
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

    def recorded(self, *words, expect=0):
        """`strategos WORDS` with the records of the steps alone; what it printed.

        The YAML names `kubeflow.root`, and this machine has no root of the pipeline.
        """
        yaml = self.workspace.folder / "recorded.yaml"
        section = {"image": "x", "context": str(self.workspace.folder.parents[1])}
        text = self.workspace.yaml.read_text()
        yaml.write_text(f"{text}kubeflow: {json.dumps(section)}\n")
        command = self.cluster.command("run", *CLI, *words, yaml)
        done = subprocess.run(command, env=self._env, capture_output=True, text=True)
        assert done.returncode == expect, done.stderr
        return done.stdout

    def reasons(self, run_id):
        """Why each step of a run ran, or did not, by the step's name."""
        found = json.loads(self.recorded("explain", "run", run_id, "--json"))
        return {each["node"]: each["text"] for each in found["nodes"]}

    def pages(self, run_id):
        """The pages of a run that Kubeflow Pipelines shows, by the step's name."""
        return self.cluster.python(PAGES, run_id)

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

    def pushed(self, folder, to="model"):
        """Downloads the pushed versions; their folders, oldest first."""
        versions = self.cluster.python(BUCKET + DOWNLOAD, str(folder), to)
        return [folder / to / version for version in versions]

    def upload(self, folder, key):
        """Uploads a folder to the bucket of the models, below a key."""
        self.cluster.python(BUCKET + UPLOAD, str(folder), key)

    def pods(self, run_id):
        """Phase and log of each pod of a run."""
        return self.cluster.python(PODS, run_id)

    def assert_shown(self, run_id, version):
        """Checks the pages of a run, and the one beside the version that it pushed."""
        pages = self.pages(run_id)
        assert pages.keys() == {"RunReport", "ModelReport"}
        beside = (version.parent / "reports" / f"{version.name}.html").read_text()
        for page in (*pages.values(), beside):
            assert f"Run {run_id}" in page and "blessed" in page
            figures = self.metrics_of(version).values()
            assert all(f"{each:.4f}" in page for each in figures)
        assert "Values of the data are left out" in beside
        assert f"s3://models/model/{version.name}" in pages["ModelReport"]

    def start_job_server(self):
        """Starts Beam's job server in a pod; its address in the cluster."""
        return self.cluster.python(PROGRAMS / "job_server.py", "start")

    def stop_job_server(self):
        """Ends that job server; its log."""
        return self.cluster.python(PROGRAMS / "job_server.py", "stop")

    def training(self, run_id):
        """The `Training` of a run."""
        return Training(self.cluster, run_id)

    def runs(self, schedule):
        """Ids of the runs of a schedule, the newest first."""
        return self.cluster.python(RUNS, schedule)

    @staticmethod
    def metrics_of(version):
        """The metrics that a pushed version was judged by."""
        manifest = (version / "assets.extra" / "manifest.json").read_text()
        return json.loads(manifest)["metrics"]

    def assert_equal(self, version, local, within=1e-6):
        """Checks a pushed version by what the wait of `start_local` returned."""
        metrics, folder = local
        assert self.metrics_of(version) == pytest.approx(metrics, abs=within)
        found, expected = variables_of(version), variables_of(folder)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=within, err_msg=name)


class Training:
    """The TFJob of a run, and the pod of the step that waits for it.

    Of the module `paused`, whose tasks wait before their second epoch.
    """

    def __init__(self, cluster, run_id):
        self._cluster, self._run_id = cluster, run_id

    def jobs(self):
        """Names and ids of the TFJobs that have not ended, or are being deleted."""
        return self._look()["jobs"]

    def owners(self):
        """The pods that these TFJobs are deleted with."""
        return self._look()["owners"]

    def step(self):
        """The name of the pod of the step that runs."""
        (name,) = self._look()["steps"]
        return name

    def delete_step(self):
        """Deletes the pod of the step, which may clean up."""
        self._look("delete", self.step())

    def end_time_of_step(self):
        """Lets the time of the step's pod be up, as a time-out in its spec does."""
        self._look("limit", self.step())

    def kill_step(self):
        """Kills the step's container, which cleans up nothing."""
        variable = f"KFP_POD_NAME={self.step()}".encode()
        for process, environment, status in _processes():
            inside = status.partition("NSpid:")[2].split("\n")[0].split()
            if variable in environment and inside[-1] == "1":
                return os.kill(int(process.name), signal.SIGKILL)
        raise AssertionError(f"no process of {variable}")

    def paused(self, job):
        """The marks of the tasks of a TFJob that wait."""
        host, found = f"HOSTNAME={job}-".encode(), {}
        for process, environment, _ in _processes():
            if any(variable.startswith(host) for variable in environment):
                marks = (process / "root" / "tmp").glob("paused-*")
                found |= {mark.name: mark for mark in marks}
        return sorted(found.values())

    def resume(self, job):
        """Lets the tasks of a TFJob go on."""
        for mark in self.paused(job):
            mark.with_name("go").touch()

    def _look(self, *action):
        return self._cluster.python(PROGRAMS / "training.py", self._run_id, *action)


def _processes():
    """Folder, environment and status of each process of this machine."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            environment = (process / "environ").read_bytes().split(b"\0")
            yield process, environment, (process / "status").read_text()


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
            versions = folder.glob("[0-9]*")
            newest = max(versions, key=lambda version: int(version.name))
            return workspace.last_run()["metrics"], newest

        return ended

    return start


@pytest.fixture(scope="module")
def pipelines(cluster, copy_flights, tmp_path_factory):
    """The flights: modules, schema and data in a bucket only, nothing in the image."""
    checkout = tmp_path_factory.mktemp("checkout")
    workspace = copy_flights(checkout)
    shutil.copy(PAUSED, workspace.folder)
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

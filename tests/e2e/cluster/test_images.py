"""Images that a user brings to the cluster."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAME = "registry.example.com/listing:1"
PROGRAM = """
#include <dirent.h>
#include <stdio.h>

int main(void) {
  DIR *folder = opendir("/");
  for (struct dirent *each; (each = readdir(folder));) puts(each->d_name);
}
"""
# Runs a pod of an image to its end; prints its phase and its log.
POD = """
import json, sys, time
from kubernetes import client, config

config.load_kube_config()
api, of = client.CoreV1Api(), "kubeflow"
container = {"name": "main", "image": sys.argv[1]}
spec = {"containers": [container], "restartPolicy": "Never"}
api.create_namespaced_pod(of, {"metadata": {"name": "listing"}, "spec": spec})
until = time.monotonic() + 120
while (phase := api.read_namespaced_pod("listing", of).status.phase) in (
    "Pending", "Running"
):
    assert time.monotonic() < until
    time.sleep(0.1)
log = api.read_namespaced_pod_log("listing", of)
api.delete_namespaced_pod("listing", of, grace_period_seconds=0)
print(json.dumps([phase, log.split()]))
"""


@pytest.fixture
def archive(tmp_path):
    """An image of a single file, a program that lists the container's root."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: apt-get install gcc libc6-dev")
    program = tmp_path / "program"
    compiler = ["gcc", "-static", "-x", "c", "-", "-o", program]
    subprocess.run(compiler, input=PROGRAM, text=True, check=True)
    layer = packed(program=program.read_bytes())
    identity = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/program"]},
        "rootfs": {"type": "layers", "diff_ids": [identity]},
    }
    tags = {"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}
    parts = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps([tags]).encode(),
    }
    file = tmp_path / "image.tar"
    file.write_bytes(packed(**parts))
    return file


def packed(**files):
    """A tar archive of files with these contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            part = tarfile.TarInfo(name)
            part.size, part.mode = len(content), 0o755
            tar.addfile(part, io.BytesIO(content))
    return buffer.getvalue()


def test_pod_of_a_loaded_image_sees_nothing_of_this_machine(cluster, archive):
    done = cluster.call("load", archive)
    assert (done.returncode, done.stdout) == (0, f"{NAME}: loaded\n"), done.stderr
    phase, names = cluster.python(POD, NAME)
    assert phase == "Succeeded"
    assert "program" in names
    assert not {"usr", "workload", "opt", "work", "root"} & {*names}

"""The images of kubeflow/Dockerfile, built and then used by all pods of a run.

Takes twenty minutes and ten gigabytes, so it is a stage of its own (make test-image).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.image, pytest.mark.timeout(3600)]

STEPS, TRAINING = "registry.example.com/steps:1", "registry.example.com/training:1"
WORKERS = Path(__file__).parents[3] / "kubeflow" / "overlays" / "workers.yaml"
NEWER = sys.version_info >= (3, 11)
BASE = "docker.io/library/python:" + (
    "3.13-slim-trixie" if NEWER else "3.10-slim-bookworm"
)
# The images of the pods of steps and of trainings.
USED = """
import json
from kubernetes import client, config

config.load_kube_config()
pods = client.CoreV1Api().list_namespaced_pod("kubeflow").items
found = {"steps": set(), "trainings": set()}
for pod in pods:
    for each in pod.spec.containers:
        if each.name == "tensorflow":
            found["trainings"].add(each.image)
        elif each.name == "main" and "system-container-impl" in pod.metadata.name:
            found["steps"].add(each.image)
print(json.dumps({name: sorted(images) for name, images in found.items()}))
"""


@pytest.fixture(scope="module")
def pipelines(cluster, copy_flights, make_pipelines, tmp_path_factory):
    checkout = tmp_path_factory.mktemp("checkout")
    return make_pipelines(
        cluster,
        copy_flights(checkout),
        f"kubeflow.image={STEPS}",
        f"kubeflow.context={checkout}",
        f"trainer.distribution.tfjob.image={TRAINING}",
    )


@pytest.fixture(scope="module")
def loaded(pipelines, tmp_path_factory):
    """Both images, in the cluster."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is missing: apt-get install buildah")
    pull = ["buildah", "pull", "--policy", "missing", BASE]
    pulled = subprocess.run(pull, capture_output=True, text=True)
    if pulled.returncode:
        pytest.skip(f"{BASE} cannot be pulled: {pulled.stderr.strip()[-300:]}")
    said = pipelines.build("--overlay", WORKERS)
    for name in (STEPS, TRAINING):
        assert f"{name}: built by buildah" in said
        archive = tmp_path_factory.mktemp("archive") / "image.tar"
        push = ["buildah", "push", "--quiet", name, f"docker-archive:{archive}"]
        subprocess.run(push, check=True)
        done = pipelines.cluster.call("load", archive)
        assert done.stdout == f"{name}: loaded\n", done.stderr
        archive.unlink()


def test_run_in_built_images_pushes_the_model_of_the_local_run(
    pipelines, loaded, start_local, tmp_path
):
    watch = pipelines.watch(tmp_path / "log", "--overlay", WORKERS)
    used = {"steps": set(), "trainings": set()}
    while watch.poll() is None:  # the pods of a training end with it
        for name, images in pipelines.cluster.python(USED).items():
            used[name] |= {*images}
        time.sleep(2)
    assert watch.wait() == 0, (tmp_path / "log").read_text()
    assert used == {"steps": {STEPS}, "trainings": {TRAINING}}
    (version,) = pipelines.pushed(tmp_path)
    pipelines.assert_equal(version, start_local()())

"""The scripts of the Kubernetes, where they do not start anything."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

SCRIPTS = Path(__file__).with_name("kubernetes")
OPERATORS_PART = Path(__file__).parents[2] / "kubeflow"


def call(folder, *words, **environ):
    return subprocess.run(
        [sys.executable, SCRIPTS, *words],
        env={**os.environ, "XDG_STATE_HOME": str(folder), **environ},
        capture_output=True,
        text=True,
    )


def test_what_the_machine_lacks_is_listed_at_once(tmp_path):
    cache = {"STRATEGOS_CACHE": str(tmp_path)}
    done = call(tmp_path, "up", PATH=str(tmp_path), **cache)
    assert done.returncode == 2
    for part in ("https://go.dev/dl", "apt-get install", " containerd ", "iproute2"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_command_needs_a_cluster_that_runs(tmp_path):
    done = call(tmp_path, "run", "true")
    assert done.returncode == 2
    assert "make cluster" in done.stderr
    (tmp_path / "strategos" / "cluster").mkdir(parents=True)
    (tmp_path / "strategos" / "cluster" / "pid").write_text(str(os.getpid()))
    assert call(tmp_path, "run", "true").returncode == 2  # another process's PID
    assert call(tmp_path, "down").returncode == 0
    assert list((tmp_path / "strategos").iterdir()) == []


def test_only_an_archive_with_named_images_is_loaded(tmp_path):
    """As `buildah push` writes them, of OCI without a name and of Docker with one."""

    def load(**parts):
        file = tmp_path / "archive.tar"
        with tarfile.open(file, "w") as tar:
            for name, value in parts.items():
                content = json.dumps(value).encode()
                part = tarfile.TarInfo(f"{name}.json")
                part.size = len(content)
                tar.addfile(part, io.BytesIO(content))
        done = call(tmp_path, "load", file)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        return done.stderr

    unnamed = load(index={"manifests": [{"digest": "sha256:0"}]})
    assert "received none" in unnamed and "docker-archive:FILE" in unnamed
    assert "is not an uncompressed image archive" in load(other={})
    named = load(manifest=[{"RepoTags": ["registry.example.com/flights:1"]}])
    assert "make cluster" in named  # the archive is right
    absent = call(tmp_path, "load", tmp_path / "absent.tar")
    assert absent.returncode == 2
    assert "absent.tar: No such file" in absent.stderr


def test_manifests_name_the_image_of_the_overlay():
    overlay = OPERATORS_PART / "overlays" / "kubeflow.yaml"
    image = yaml.safe_load(overlay.read_text())["kubeflow"]["image"]
    documents = [
        each
        for file in sorted(SCRIPTS.glob("manifests/*.yaml"))
        for each in yaml.safe_load_all(file.read_text())
    ]
    pods = [
        each["spec"]["template"]["spec"]
        for each in documents
        if each["kind"] == "Deployment"
    ]
    assert {c["image"] for pod in pods for c in pod["containers"]} == {image}
    accounts = {
        each["metadata"]["name"]
        for each in documents
        if each["kind"] == "ServiceAccount"
    }
    assert {pod["serviceAccountName"] for pod in pods} <= accounts


def test_build_says_how_long_it_will_take_by_its_pace(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    programs = importlib.import_module("programs")
    costs = programs._SECONDS
    assert costs.keys() <= {each.name for each in programs.PROGRAMS}
    monkeypatch.setattr(programs.os, "cpu_count", lambda: 2)
    assert programs._left(programs.PROGRAMS, 0, 0.0) == "about 11 min left"
    slow = programs._left(programs.PROGRAMS, 1, 4.0 * costs["kubernetes"])
    assert slow == "about 59 min left"
    last = len(programs.PROGRAMS) - 1
    assert programs._left(programs.PROGRAMS, last, 60.0) == "about 1 min left"

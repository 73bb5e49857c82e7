"""`strategos image build`: a script stands in for the builder, except for pushes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import requests
from image_registry import ImageRegistry
from server import running

from strategos.pipeline import cli

_BUILDER = """\
#!{python}
import json, pathlib, sys
words = sys.argv[1:]
call = {{"words": words}}
if words[0] == "build":
    named = dict(zip(words, words[1:]))
    sources = pathlib.Path(named["--build-context"].partition("=")[2])
    call["sources"] = sorted(path.name for path in sources.iterdir())
    call["bytecode"] = [str(path) for path in sources.rglob("__pycache__")]
    call["ignored"] = pathlib.Path(named["--ignorefile"]).read_text().split("\\n")
    call["dockerfile"] = pathlib.Path(named["--file"]).is_file()
with open({calls!r}, "a") as file:
    print(json.dumps(call), file=file)
print("STEP 1: FROM python")
sys.exit({code})
"""
_MAKING = """
import shutil

def prepare(folder):
    shutil.copytree(f"{folder}/data", f"{folder}/made")
"""
# Builds an image without a base, which this machine need not be able to pull.
_SMALL = """\
#!/bin/sh
set -e
[ "$1" = build ] || exec {real} "$@"
while [ "$1" != --tag ]; do shift; done
{real} rmi "$2" || true
container=$({real} from scratch)
{real} copy -q "$container" "$0" /
{real} commit -q "$container" "$2"
{real} rm "$container"
"""


@pytest.fixture
def build(workload, write, monkeypatch, capfd):
    """Builds with a recording builder: `build(*words)` to code, calls, output."""

    def build(*words, section, code=0, others=(), target="kubeflow"):
        calls = workload.with_name("calls.jsonl")
        tool = write(
            "bin/buildah",
            _BUILDER.format(python=sys.executable, calls=str(calls), code=code),
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tool.parent))
        sets = [f"{target}={json.dumps(section)}", "pusher.to=s3://b/m", *others]
        flags = [word for each in sets for word in ("--set", each)]
        words = ("--target", target, *flags, *words)
        returned = cli.main(["image", "build", str(workload), *words])
        lines = calls.read_text().splitlines() if calls.exists() else []
        return returned, [json.loads(line) for line in lines], capfd.readouterr()

    return build


def test_image_is_built_of_the_context_and_pushed(build, workload, write):
    write(".dockerignore", "notes/\n")
    section = {"image": "r.example/flights:1"}
    code, (made, pushed), output = build("--push", section=section)
    assert code == 0
    assert made["words"][-1] == str(workload.parent)
    assert made["words"][made["words"].index("--tag") + 1] == "r.example/flights:1"
    assert "--target" not in made["words"]
    assert {"components", "pipeline", "pyproject.toml", "uv.lock"} < {*made["sources"]}
    assert made["bytecode"] == [] and made["dockerfile"]
    assert {"**/.venv", "notes/"} <= {*made["ignored"]}
    assert pushed["words"] == ["push", "r.example/flights:1"]
    assert "built by buildah" in output.out and "pushed" in output.out
    assert "STEP 1" in output.err and "STEP 1" not in output.out


def test_image_without_a_workload_is_built_of_an_empty_folder(build, tmp_path):
    (tmp_path / "empty").mkdir()
    section = {"image": "x", "context": "empty", "modules": "s3://b/modules"}
    code, calls, output = build(section=section)
    assert (code, calls) == (2, [])
    assert "data.examples: received" in output.err
    assert "kubeflow.context: " not in output.err
    section["volumes"] = [{"claim": "c", "path": "/mnt/v"}]
    others = ["data.examples=/mnt/v/span-{SPAN}/*.csv"]
    code, (made,), _ = build(section=section, others=others)
    assert code == 0
    assert made["words"][-1] == str(tmp_path / "empty")


def test_missing_data_are_made_before_the_image_that_contains_them(
    build, workload, write
):
    section = {"image": "r.example/flights:1"}
    others = ["data.examples=made/span-{SPAN}/*.csv", "data.prepare=making"]
    write("making.py", "def prepare(folder):\n    raise OSError('no network')\n")
    code, calls, output = build(section=section, others=others)
    assert (code, calls) == (2, [])
    assert "making failed (see above), so no data exist" in output.err
    write("making.py", _MAKING)
    assert build(section=section, others=others)[0] == 0
    made = workload.parent / "made"
    assert sorted(each.name for each in made.iterdir()) == ["span-1", "span-2"]


def test_pods_of_a_tfjob_get_the_image_for_training(build):
    volume = {"claim": "c", "path": "/mnt/c"}
    section = {"image": "r.example/flights:1", "volumes": [volume]}
    job = {"image": "r.example/train:1", "folder": "/mnt/c/j", "volumes": [volume]}
    gang = {"launcher": "tfjob", "strategy": "multi_worker_mirrored", "workers": 2}
    others = [f"trainer.distribution={json.dumps({**gang, 'tfjob': job})}"]
    code, calls, _ = build(section=section, others=others)
    assert code == 0
    tags = [each["words"][each["words"].index("--tag") + 1] for each in calls]
    assert tags == ["r.example/flights:1", "r.example/train:1"]
    assert "training" in calls[1]["words"]
    job["image"] = section["image"]
    others = [f"trainer.distribution={json.dumps({**gang, 'tfjob': job})}"]
    assert len(build(section=section, others=others)[1]) == 3  # one more


def test_containers_of_a_custom_job_get_the_image_for_training(build):
    section = {"image": "r.example/flights:1", "project": "p", "root": "gs://b/r"}
    job = {"image": "r.example/train:1"}
    gang = {"launcher": "vertex", "strategy": "multi_worker_mirrored", "vertex": job}
    others = [f"trainer.distribution={json.dumps(gang)}", "pusher.to=gs://b/m"]
    code, calls, _ = build(section=section, others=others, target="vertex")
    assert code == 0
    tags = [each["words"][each["words"].index("--tag") + 1] for each in calls]
    assert tags == ["r.example/flights:1", "r.example/train:1"]


def test_failed_build_is_not_pushed(build):
    code, calls, output = build("--push", section={"image": "x"}, code=125)
    assert code == 1
    assert len(calls) == 1
    assert "`buildah build` ended with exit code 125" in output.err
    assert output.out == ""


def test_image_needs_a_fitting_pipeline(build):
    code, calls, output = build(section={"image": "x", "context": "/nowhere"})
    assert (code, calls) == (2, [])
    assert "kubeflow.context" in output.err


def test_image_needs_a_builder(workload, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(workload.parent))
    sets = ["--set", "kubeflow={image: x}", "--set", "pusher.to=s3://b/m"]
    words = ["image", "build", str(workload), "--target", "kubeflow", *sets]
    assert cli.main(words) == 2
    assert "buildah, podman, docker is in the PATH" in capsys.readouterr().err


@pytest.fixture
def registry(tmp_path, free_ports):
    """A real registry that wants credentials: its address, user and password."""
    with running(ImageRegistry(tmp_path, *free_ports(1))) as found:
        yield found.address, found.user, found.password
        made = ["buildah", "rmi", f"{found.address}/flights:1"]
        subprocess.run(made, stdout=subprocess.DEVNULL)


def test_image_is_pushed_to_a_real_registry_by_its_credentials(
    registry, workload, write, monkeypatch, capfd
):
    address, *user = registry
    name = f"{address}/flights:1"
    tool = write("bin/buildah", _SMALL.format(real=shutil.which("buildah")))
    tool.chmod(0o755)
    plain = write(
        "registries.conf", f'[[registry]]\nlocation="{address}"\ninsecure=true'
    )
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(plain))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(write("auth.json", "{}")))
    sets = ("--set", f"kubeflow={{image: {name}}}", "--set", "pusher.to=s3://b/m")
    words = ["image", "build", str(workload), "--target", "kubeflow", "--push", *sets]
    assert cli.main(words) == 1
    said = capfd.readouterr()
    assert "authentication required" in said.err
    assert f"{name} was built, but not pushed" in said.err and "login" in said.err
    assert "pushed" not in said.out
    login = ["buildah", "login", "--tls-verify=false", "--username", user[0]]
    login += ["--password-stdin", address]
    subprocess.run(login, input=user[1], text=True, check=True)
    assert cli.main(words) == 0
    assert f"{name}: pushed" in capfd.readouterr().out
    accepted = "application/vnd.oci.image.manifest.v1+json"
    manifest = requests.get(
        f"http://{address}/v2/flights/manifests/1",
        headers={"Accept": accepted},
        auth=tuple(user),
        timeout=10,
    ).json()
    ask = ["buildah", "images", "--quiet", "--no-trunc", name]
    here = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert manifest["config"]["digest"] == here.strip()

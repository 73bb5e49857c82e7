from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys

import pytest

from strategos.pipeline.checks import machine
from strategos.pipeline.config import loading

REQUIRED = [
    "tfx==1.16.0; python_version < '4'",
    "tfx==9.0; python_version >= '4'",
    "pydantic>=2.6,<3",
    "nvidia-cudnn; extra == 'gpu'",
]


def installed(versions):
    def version_of(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    return version_of


def test_stack_of_the_lock_is_right():
    versions = {"tfx": "1.16.0", "pydantic": "2.9"}
    check = machine.stack(REQUIRED, installed(versions))
    assert (check.ok, check.found) == (True, "TFX 1.16.0")


def test_stack_that_differs_is_named_with_what_is_needed():
    check = machine.stack(REQUIRED, installed({"tfx": "1.15.0"}))
    assert check.ok is False
    assert (
        check.found
        == "tfx is 1.15.0, but Strategos needs ==1.16.0; pydantic is missing"
    )
    assert check.remedy == "make setup"


@pytest.mark.parametrize(
    ("version", "newer", "ok", "remedy"),
    [
        ((2, 36), False, True, None),
        ((2, 36), True, False, "Python 3.10"),
        ((2, 41), True, True, None),
        ((2, 41), False, True, "make setup"),
    ],
)
def test_glibc_decides_on_the_stack(version, newer, ok, remedy):
    check = machine.glibc(version, newer)
    assert check.ok is ok
    assert remedy is None or remedy in check.remedy


def test_compiler_and_headers_are_asked_for_until_the_stack_is_installed(tmp_path):
    missing = machine.compiler({}.get, str(tmp_path), installed=False)
    assert (missing.ok, missing.found) == (False, "no C++ compiler and no Python.h")
    version = "{}.{}".format(*sys.version_info)
    assert missing.remedy == f"apt-get install -y g++ python{version}-dev"
    assert machine.compiler({}.get, str(tmp_path), installed=True).ok is None
    (tmp_path / "Python.h").touch()
    assert machine.compiler({"g++": "/g++"}.get, str(tmp_path), installed=False).ok


@pytest.mark.parametrize(("writes", "ok"), [(True, None), (False, False)])
def test_missing_bytecode_matters_where_none_is_written(
    tmp_path, monkeypatch, writes, ok
):
    (tmp_path / "raw_package").mkdir()
    (tmp_path / "raw_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    check = machine.bytecode(("raw_package",), writes)
    assert check.ok is ok
    assert "raw_package not compiled" in check.found
    subprocess.run([sys.executable, "-m", "compileall", "-q", tmp_path], check=True)
    assert machine.bytecode(("raw_package",), writes).ok


def test_gpu_that_tensorflow_does_not_see_is_wrong():
    blind = machine.gpu("550.54", lambda: (0, "cuInit failed"), libraries=False)
    assert blind.ok is False
    assert blind.found == "NVIDIA driver 550.54, but TensorFlow sees no GPU"
    assert "uv sync --inexact --extra gpu" in blind.remedy


def test_gpu_unseen_in_spite_of_its_libraries_reports_why():
    blind = machine.gpu("550.54", lambda: (0, "cuInit failed"), libraries=True)
    assert blind.found.endswith("sees no GPU: cuInit failed")
    assert "nvidia-smi" in blind.remedy


def test_gpus_are_counted_and_need_not_be_there():
    seen = machine.gpu("550.54", lambda: (2, ""))
    assert (seen.ok, seen.found) == (True, "2 GPUs (NVIDIA driver 550.54)")

    def count():
        raise AssertionError("TensorFlow is not started without a driver")

    assert machine.gpu("", count).ok is None


def test_tpu_is_found_by_name_and_by_device():
    assert machine.tpu({}, []).ok is None
    named = machine.tpu({"TPU_NAME": "tpu-1"}, [])
    assert (named.ok, named.found) == (True, "TPU_NAME=tpu-1")
    attached = machine.tpu({}, ["/dev/accel0"])
    assert (attached.ok, attached.found) == (False, "/dev/accel0, but no libtpu")


def test_flink_may_be_missing(tmp_path):
    check = machine.flink({"PATH": str(tmp_path)})
    assert check.ok is None
    assert "only `run.engine.runner: flink` needs it: Flink needs java" in check.found


def test_disk_space_and_permission_are_checked(tmp_path):
    new = tmp_path / "not" / "yet"
    full = machine.disk(str(new), free=10**9)
    assert (full.ok, full.found) == (False, f"1 GB free at {tmp_path}")
    assert machine.disk(str(new), free=10**11).ok
    assert machine.disk("gs://bucket/root").ok is None


@pytest.fixture
def pipeline(tmp_path):
    """Writes a pipeline.yaml that keeps ML Metadata at `url`; returns its path."""

    def write(url="sqlite"):
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            "name: small\nlabel: y\ndata: {examples: data/*.csv}\n"
            "transform: {module: preprocessing}\ntrainer: {module: model}\n"
            f"run: {{root: runs, metadata: '{url}'}}\n"
        )
        return str(file)

    return write


def check_metadata(path):
    return machine.metadata(loading.load(path).config)


def test_metadata_of_a_new_root_is_not_made_by_looking(pipeline, tmp_path):
    check = check_metadata(pipeline())
    assert check.ok is None
    assert not (tmp_path / "runs").exists()


def test_metadata_that_opens_is_right_and_a_corrupt_file_is_not(pipeline, tmp_path):
    file = tmp_path / "runs" / "metadata.sqlite"
    file.parent.mkdir()
    file.touch()
    assert check_metadata(pipeline()).ok
    file.write_bytes(b"no database" * 1000)
    corrupt = check_metadata(pipeline())
    assert corrupt.ok is False
    assert str(file) in corrupt.found
    assert "backup" in corrupt.remedy


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_metadata_server_that_does_not_listen_is_named_at_once(pipeline, scheme):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        check = check_metadata(pipeline(f"{scheme}://me@127.0.0.1:{port}/db"))
    assert check.ok is False
    assert f"127.0.0.1:{port} as me cannot be used" in check.found
    assert "server runs" in check.remedy


def test_broken_pipeline_file_is_a_check_like_the_others(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text("nmae: x\n")
    check = next(c for c in machine.diagnose(str(file)) if c.name == "pipeline")
    assert check.ok is False
    assert check.remedy == f"strategos validate {file}"


def test_verdict_counts_what_is_wrong():
    checks = [
        machine.MachineCheck("disk", False, "1 GB free", "Make room."),
        machine.MachineCheck("Java", None, "none"),
        machine.MachineCheck("Python", True, "3.13"),
    ]
    text = machine.render(checks)
    assert "disk    1 GB free\n          -> Make room." in text
    assert text.endswith("1 thing needs fixing.")
    assert machine.render(checks[1:]).endswith("Nothing is missing.")

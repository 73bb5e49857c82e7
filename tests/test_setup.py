from __future__ import annotations

import ast
import base64
import hashlib
import http.server
import importlib
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
WHEEL = "uv-{}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


@pytest.fixture
def setup(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield importlib.import_module("setup")
    sys.modules.pop("setup")


@pytest.fixture
def uv_tool(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("uv_tool")


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda s: s.name)
def test_scripts_run_on_python_3_7(script):
    ast.parse(script.read_text(), feature_version=(3, 7))


# Which Python is picked.

NEW, OLD = (2, 41), (2, 36)


@pytest.mark.parametrize(
    ("glibc", "here", "picked"),
    [
        (NEW, ["3.10", "3.11", "3.12", "3.13"], "3.13"),
        (NEW, ["3.10", "3.11", "3.12"], "3.12"),
        (NEW, ["3.10", "3.11"], "3.11"),
        ((2, 39), ["3.13"], "3.13"),
        ((2, 38), ["3.10", "3.13"], "3.10"),
        (OLD, ["3.9", "3.10", "3.11", "3.12", "3.13"], "3.10"),
        ((2, 17), ["3.10"], "3.10"),
    ],
)
def test_newest_stack_that_glibc_and_pythons_allow_is_picked(
    setup, glibc, here, picked
):
    python = setup.pick_python(glibc, finder(setup, here), no_download(setup))
    assert python.version == picked


@pytest.mark.parametrize(("glibc", "version"), [(NEW, "3.13"), (OLD, "3.10")])
def test_newest_python_is_downloaded_where_none_fits(setup, glibc, version):
    def download(version):
        return setup.Python(version, "downloaded", True)

    python = setup.pick_python(glibc, finder(setup, ["3.9"]), download)
    assert python == (version, "downloaded", True)


def test_older_stack_is_picked_where_the_newer_has_no_python(setup):
    python = setup.pick_python(NEW, finder(setup, ["3.10"]), no_download(setup))
    assert python.version == "3.10"


def test_newer_stack_needs_neither_headers_nor_a_compiler(setup, monkeypatch):
    monkeypatch.setattr(setup.shutil, "which", {}.get)
    find = finder(setup, ["3.10", "3.13"], without_headers=["3.13"])
    python = setup.pick_python(NEW, find, no_download(setup))
    assert python.version == "3.13"
    setup.require_compiler(python)


def test_pyfarmhash_has_a_wheel_for_each_python_of_the_newer_stack():
    lock = (SCRIPTS.parent / "uv.lock").read_text()
    packages = [p for p in lock.split("[[package]]") if '"pyfarmhash"\nver' in p]
    newer = [package for package in packages if "'3.13'" in package]
    for python in ("cp311", "cp312", "cp313"):
        assert [f"-{python}-manylinux" in package for package in newer] == [True]


def test_missing_headers_are_named_with_the_command_that_helps(setup, monkeypatch):
    monkeypatch.setattr(setup.shutil, "which", {"apt-get": "/usr/bin/apt-get"}.get)
    find = finder(setup, ["3.10"], without_headers=["3.10"])
    with pytest.raises(setup.SetupError) as error:
        setup.pick_python(OLD, find, no_download(setup))
    assert "Python 3.10 (/here/python3.10) is installed without its headers" in str(
        error.value
    )
    assert "apt-get install -y python3.10-dev" in str(error.value)


def test_no_python_says_what_is_missing(setup):
    with pytest.raises(setup.SetupError, match=r"Python 3\.10 cannot be had"):
        setup.pick_python(OLD, finder(setup, ["3.13"]), no_download(setup))


def test_too_old_glibc_is_refused(setup):
    with pytest.raises(setup.SetupError, match=r"glibc 2\.12 is too old"):
        setup.pick_python((2, 12), finder(setup, ["3.10"]), no_download(setup))


def test_pyenv_pythons_are_found_and_dead_shims_and_environments_are_not(
    setup, tmp_path, monkeypatch
):
    version = "{}.{}".format(*sys.version_info)
    pyenv, shims, environment = (tmp_path / name for name in ("pyenv", "shims", "env"))
    real = pyenv / "versions" / f"{version}.99" / "bin" / f"python{version}"
    program(real, f'exec "{os.path.realpath(sys.executable)}" "$@"')
    program(shims / f"python{version}", "exit 127")
    program(environment / f"python{version}", f'exec "{sys.executable}" "$@"')
    monkeypatch.setenv("PATH", f"{shims}:{environment}")
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = setup.find_pythons(version, str(tmp_path / "none"))
    assert [python.path for python in found] == [str(real)]
    assert setup.find_pythons("3.6", str(tmp_path / "none")) == []


def test_missing_compiler_is_named_with_the_command_that_helps(setup, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(setup.shutil, "which", {"dnf": "/usr/bin/dnf"}.get)
    with pytest.raises(setup.SetupError, match=r"C\+\+ compiler(.|\n)*dnf.*gcc-c\+\+"):
        setup.require_compiler(setup.Python("3.10", "/here/python3.10", True))


def test_other_systems_are_refused(setup, monkeypatch):
    monkeypatch.setattr(setup.platform, "machine", lambda: "arm64")
    with pytest.raises(setup.SetupError, match=r"x86_64; this is .* on arm64"):
        setup.glibc_version()


def test_long_set_up_shows_how_many_packages_it_has_installed(
    setup, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "REPORT_SECONDS", 0.2)
    packages = ".venv/lib/python3.10/site-packages"
    program(
        tmp_path / "uv",
        f"mkdir -p {packages}/a.dist-info; sleep 0.5; mkdir {packages}/b.dist-info\n"
        "sleep 0.5; exit 3",
    )
    python = setup.Python("3.10", "/usr/bin/python3.10", headers=True)
    with pytest.raises(setup.SetupError, match="exit code 3"):
        setup.sync(tmp_path / "uv", python, [])
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "  0 s: 1 packages installed"
    assert any(line.endswith("compiling bytecode") for line in lines)


# When there is nothing to do.


def test_set_up_is_done_until_the_lock_changes(setup, checkout):
    stamp = setup.Stamp(checkout)
    assert not stamp.holds(["examples"])
    stamp.write(["examples"], finished=True)
    assert stamp.holds(["examples"])
    assert not stamp.holds(["examples", "gpu"])
    (checkout / "uv.lock").write_text("other")
    assert not stamp.holds(["examples"])


def test_interrupted_set_up_is_not_done_and_keeps_its_extras(setup, checkout):
    stamp = setup.Stamp(checkout)
    stamp.write(["examples", "gpu"], finished=False)
    assert not stamp.holds(["examples", "gpu"])
    assert stamp.extras() == ["examples", "gpu"]


def test_set_up_without_its_python_is_not_done(setup, checkout):
    stamp = setup.Stamp(checkout)
    stamp.write(["examples"], finished=True)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert not stamp.holds(["examples"])


# uv from the index.


@pytest.mark.parametrize("form", ["json", "html"])
def test_newest_uv_in_range_is_installed_by_its_hash(uv_tool, index, tmp_path, form):
    index.form = form
    for version in ("0.8.9", "0.13.1", "0.13.10", "0.13.11rc1", "1.0.0"):
        index.add(version)
    index.add("0.13.12", yanked=True)
    index.add("0.13.13", name="uv-0.13.13-py3-none-musllinux_1_1_x86_64.whl")
    uv = uv_tool.find_or_install(tmp_path / "cache")
    assert uv == tmp_path / "cache" / "uv-0.13.10" / "uv"
    assert uv_tool.version_of(str(uv)) == (0, 13, 10)
    index.files.clear()
    assert uv_tool.find_or_install(tmp_path / "cache") == uv


@pytest.mark.parametrize("sha256", ["0" * 64, ""])
def test_uv_with_another_hash_is_refused(uv_tool, index, tmp_path, sha256):
    index.add("0.13.1", sha256=sha256)
    with pytest.raises(uv_tool.UvError, match=r"SHA-256 .*nothing was installed"):
        uv_tool.find_or_install(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_index_without_a_fitting_uv_is_named(uv_tool, index, tmp_path):
    index.add("0.1.0")
    with pytest.raises(uv_tool.UvError, match=r"/simple/uv/ lists no uv >= 0\.9\.0"):
        uv_tool.find_or_install(tmp_path / "cache")


def test_index_that_cannot_be_reached_is_named(uv_tool, index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:1/simple")
    with pytest.raises(uv_tool.UvError, match="Set PIP_INDEX_URL") as error:
        uv_tool.find_or_install(tmp_path / "cache")
    assert "http://127.0.0.1:1/simple" in str(error.value)
    assert "secret" not in str(error.value)


def test_credentials_of_the_index_are_sent(uv_tool, index, tmp_path, monkeypatch):
    index.add("0.13.1")
    index.password = "user:p@ss"
    url = index.url.replace("//", "//user:p%40ss@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    assert uv_tool.find_or_install(tmp_path / "cache").exists()


def test_index_of_pips_configuration_is_used(uv_tool, tmp_path, monkeypatch):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    assert uv_tool.index_url() == "https://mirror.example/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "ours=https://other.example/simple")
    assert uv_tool.index_url() == "https://other.example/simple"


def test_uv_on_path_is_used_if_its_version_fits(uv_tool, tmp_path, monkeypatch):
    uv = tmp_path / "bin" / "uv"
    program(uv, "echo 'uv 0.9.5 (abc 2026-01-01)'")
    monkeypatch.setenv("PATH", f"{uv.parent}:/bin")
    assert uv_tool.find_or_install(tmp_path / "cache") == uv


def test_uv_that_does_not_run_has_no_version(uv_tool, tmp_path):
    program(tmp_path / "uv", "exit 1")
    assert uv_tool.version_of(str(tmp_path / "uv")) == ()


def test_make_names_every_target():
    said = subprocess.run(
        ["make", "help"], cwd=SCRIPTS.parent, capture_output=True, text=True, check=True
    )
    for target in ("setup", "run", "test", "test-new-stack", "lint"):
        assert f"make {target} " in said.stdout


def finder(setup, here, without_headers=()):
    def find(version):
        headers = version not in without_headers
        python = setup.Python(version, f"/here/python{version}", headers)
        return [python] if version in here else []

    return find


def no_download(setup):
    def download(version):
        raise setup.SetupError(f"Python {version} cannot be had")

    return download


def program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    for name in ("uv.lock", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    for name in ("python", "strategos"):
        program(tmp_path / ".venv" / "bin" / name, "exit 0")
    return tmp_path


class Index:
    """A package index on this machine, with one project."""

    def __init__(self):
        self.form = "json"
        self.password = ""
        self.files = []
        self.contents = {}
        self.url = ""

    def add(self, version, *, yanked=False, sha256=None, name=None):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as wheel:
            script = f"#!/bin/sh\necho uv {version}\n"
            wheel.writestr(f"uv-{version}.data/scripts/uv", script)
        name = name or WHEEL.format(version)
        self.contents[name] = content.getvalue()
        if sha256 is None:
            sha256 = hashlib.sha256(content.getvalue()).hexdigest()
        self.files.append((name, sha256, yanked))

    def page(self):
        if self.form == "json":
            files = [
                {"url": f"../../files/{n}", "hashes": {"sha256": h}, "yanked": y}
                for n, h, y in self.files
            ]
            return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files})
        anchors = [
            f'<a href="../../files/{n}#sha256={h}"{" data-yanked" if y else ""}>{n}</a>'
            for n, h, y in self.files
        ]
        return "text/html", "\n".join(anchors)

    def answer(self, path, authorization):
        """Status, type and body."""
        token = base64.b64encode(self.password.encode()).decode()
        if self.password and authorization != f"Basic {token}":
            return 401, "text/plain", b""
        if path == "/simple/uv/":
            kind, body = self.page()
            return 200, kind, body.encode()
        content = self.contents.get(path.rpartition("/")[2], b"")
        return (200 if content else 404), "application/octet-stream", content


@pytest.fixture
def index(monkeypatch, tmp_path):
    served = Index()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, kind, body = served.answer(
                self.path, self.headers.get("Authorization")
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/simple"
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("UV_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", served.url)
    monkeypatch.setenv("PATH", "/bin")
    yield served
    server.shutdown()
    server.server_close()
    thread.join()

"""Sets the checkout up: from a fresh clone to a working `.venv`.

Runs on any `python3` from 3.7 on, without pip or venv. It finds or installs uv (see
`uv_tool.py`), picks the newest stack that this machine's glibc and Pythons allow, and
syncs the lock with bytecode compiled. Called by every target of the Makefile: once all
is done, a stamp answers in a tenth of a second.

Usage: python3 scripts/setup.py [--extra NAME]...
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import uv_tool

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("examples",)  # Always installed, beside those asked for by --extra.


class Stack(NamedTuple):
    """One column of the lock: the Pythons it runs on, and the glibc it needs.

    Where `compiles`, pyfarmhash has no wheel in the lock and is built from source.
    """

    name: str
    glibc: tuple
    pythons: tuple
    compiles: bool


# Newest first, as facts of the wheels of ml-metadata and TFDV.
STACKS = (
    Stack("TFX 1.21", glibc=(2, 39), pythons=("3.13", "3.12", "3.11"), compiles=False),
    Stack("TFX 1.16", glibc=(2, 17), pythons=("3.10",), compiles=True),
)


class Python(NamedTuple):
    """An interpreter of this machine; `headers` are what a compiler needs of it."""

    version: str
    path: str
    headers: bool


class SetupError(Exception):
    """What is missing, and the one command that helps."""


def main(argv: list | None = None) -> int:
    """Sets up, or finds that all is done; returns the exit code."""
    parser = argparse.ArgumentParser(description="Sets this checkout up into .venv.")
    parser.add_argument("--extra", action="append", default=[], metavar="NAME")
    asked = parser.parse_args(argv).extra
    stamp = Stamp(ROOT)
    extras = sorted({*EXTRAS, *asked, *stamp.extras()})
    try:
        if not stamp.holds(extras):
            set_up(stamp, extras)
    except (SetupError, uv_tool.UvError) as e:
        print(f"Set-up cannot go on: {e}", file=sys.stderr)
        return 1
    print(f'Ready. For the shell: export PATH="{ROOT}/.venv/bin:$PATH"', flush=True)
    return 0


def set_up(stamp: Stamp, extras: list) -> None:
    """Checks what a machine must bring, then makes `.venv` what the lock says."""
    glibc = glibc_version()
    uv = uv_tool.find_or_install(ROOT / ".cache")
    python = pick_python(
        glibc,
        find=lambda version: find_pythons(version, uv_pythons(uv)),
        download=lambda version: download_python(uv, version),
    )
    require_compiler(python)
    print(
        f"Installing the stack for Python {python.version} ({python.path}) into "
        f"{ROOT / '.venv'}: some minutes the first time",
        flush=True,
    )
    stamp.write(extras, finished=False)
    sync(uv, python, extras)
    stamp.write(extras, finished=True)


def glibc_version() -> tuple:
    """Returns this machine's glibc, such as `(2, 36)`.

    Raises:
        SetupError: The lock has nothing for this operating system or processor.
    """
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        said = ""
    found = re.match(r"glibc (\d+)\.(\d+)", said)
    if not found or platform.machine() != "x86_64":
        raise SetupError(
            f"TFX's native packages need Linux with glibc on x86_64; this is "
            f"{platform.system()} on {platform.machine()}"
            f"{'' if found else ' without glibc'}.\n"
            "  Use a container: docker run -it --platform linux/amd64 debian:13"
        )
    return int(found.group(1)), int(found.group(2))


def require_compiler(python: Python) -> None:
    """Looks for a C++ compiler on PATH if this Python's stack needs one.

    Raises:
        SetupError: It needs one, and there is none.
    """
    (stack,) = (stack for stack in STACKS if python.version in stack.pythons)
    if not stack.compiles:
        return
    compiler = shlex.split(os.environ.get("CXX", ""))[:1]
    if not any(map(shutil.which, [*compiler, "c++", "g++", "clang++"])):
        raise SetupError(
            f"a C++ compiler is missing; for Python {python.version} pyfarmhash, a "
            "dependency of TFX, is built from source.\n"
            f"  {install_command('g++', 'gcc-c++')}"
        )


def install_command(debian: str, red_hat: str) -> str:
    """Returns the command that installs a system package on this machine."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        return f"Run: {sudo}apt-get install -y {debian}"
    if shutil.which("dnf"):
        return f"Run: {sudo}dnf install -y {red_hat}"
    return f"Install it with this system's package manager ({debian} on Debian)."


def pick_python(glibc: tuple, find, download) -> Python:
    """Picks the Python of the newest stack that this machine allows.

    Args:
        glibc: Such as `(2, 36)`.
        find: Called with "3.13" and so on: the list of such Pythons here.
        download: Called with a version where none is here; raises SetupError.

    Raises:
        SetupError: None fits; says what is missing and what to run.
    """
    problems = []
    for stack in STACKS:
        if glibc < stack.glibc:
            continue
        found = [python for version in stack.pythons for python in find(version)]
        usable = [each for each in found if each.headers or not stack.compiles]
        if usable:
            return usable[0]
        try:
            return download(stack.pythons[0])
        except SetupError as e:
            problems.append(e)
        if found:
            raise SetupError(headers_missing(found[0]))
    raise (
        problems[0]
        if problems
        else SetupError("glibc {}.{} is too old: TFX needs 2.17.".format(*glibc))
    )


def headers_missing(python: Python) -> str:
    """Returns what to do for a Python that has no Python.h."""
    package = f"python{python.version}"
    return (
        f"Python {python.version} ({python.path}) is here, but not its headers "
        "(Python.h); pyfarmhash, a dependency of TFX, is built from source.\n"
        f"  {install_command(package + '-dev', package + '-devel')}"
    )


def find_pythons(version: str, uv_folder: str) -> list:
    """Returns the Pythons of this version: uv's, those on PATH, pyenv's."""
    name = f"python{version}"
    folders = glob.glob(f"{uv_folder}/cpython-{version}.*/bin")
    folders += os.environ.get("PATH", os.defpath).split(os.pathsep)
    for pyenv in (os.environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv")):
        folders += glob.glob(f"{pyenv}/versions/{version}.*/bin") if pyenv else []
    paths = [os.path.join(folder, name) for folder in dict.fromkeys(folders)]
    found = [probe(version, path) for path in paths if os.access(path, os.X_OK)]
    return [python for python in found if python]


PROBE = """
import json, os, sys, sysconfig
folders = sysconfig.get_config_var("INCLUDEPY"), sysconfig.get_path("include")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "plain": sys.prefix == sys.base_prefix and sys.implementation.name == "cpython",
    "headers": any(os.path.exists(f"{folder}/Python.h") for folder in folders),
}))
"""


def probe(version: str, path: str) -> Python | None:
    """Asks an interpreter what it is; None where it does not run (a pyenv shim)."""
    said = subprocess.run(
        [path, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if said.returncode:
        return None
    facts = json.loads(said.stdout.decode())
    if not facts["plain"] or facts["version"] != version:
        return None
    return Python(version, path, facts["headers"])


def uv_pythons(uv: Path) -> str:
    """Returns the folder of the Pythons that uv manages."""
    said = subprocess.run([str(uv), "python", "dir"], stdout=subprocess.PIPE)
    return said.stdout.decode().strip()


def download_python(uv: Path, version: str) -> Python:
    """Lets uv download a Python, which brings its headers.

    Raises:
        SetupError: It could not; says the command that helps.
    """
    print(f"No usable Python {version} is here: letting uv download it", flush=True)
    command = [str(uv), "python", "install", "--no-bin", version]
    said = subprocess.run(command, stderr=subprocess.PIPE)
    found = find_pythons(version, uv_pythons(uv)) if said.returncode == 0 else []
    if found:
        return found[0]
    installer = "pyenv" if shutil.which("pyenv") else f"{uv} python"
    causes = said.stderr.decode().replace("cause: ", "").strip().splitlines()
    raise SetupError(
        f"Python {version} is missing, and uv could not download it "
        f"({causes[-1].strip() if causes else 'no reason given'}).\n"
        f"  Run, where its download is reached: {installer} install {version}"
    )


def sync(uv: Path, python: Python, extras: list) -> None:
    """Makes `.venv` what the lock says, with bytecode compiled."""
    command = [str(uv), "sync", "--frozen", "--compile-bytecode"]
    command += ["--python", python.path]
    for extra in extras:
        command += ["--extra", extra]
    if not sys.stderr.isatty():
        command.append("--quiet")
    # An active environment of the caller's is not the one to write into.
    mine = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONHOME", "PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k not in mine}
    code = subprocess.run(command, cwd=str(ROOT), env=env).returncode
    if code:
        raise SetupError(
            f"uv ended with {code}; what it said is above. To try again:\n"
            f"  Run: make setup"
        )


class Stamp:
    """What `.venv` was made from, kept inside it."""

    def __init__(self, root: Path):
        self._root = root
        self._file = root / ".venv" / "strategos-setup.json"

    def extras(self) -> list:
        """Returns the extras installed so far: they stay when the lock changes."""
        return self._read().get("extras", [])

    def holds(self, extras: list) -> bool:
        """Returns whether `.venv` is what a set-up with these extras would make."""
        runs = all(
            (self._root / ".venv" / "bin" / name).exists()
            for name in ("python", "strategos")
        )
        return runs and self._read() == {"made from": self._inputs(), "extras": extras}

    def write(self, extras: list, finished: bool) -> None:
        """Records a set-up: before it starts, where there is one, and at its end."""
        made_from = self._inputs() if finished else None
        if self._file.parent.exists():  # uv refuses a folder that is not its own.
            stamp = {"made from": made_from, "extras": extras}
            self._file.write_text(json.dumps(stamp))

    def _read(self) -> dict:
        try:
            return json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}

    def _inputs(self) -> str:
        """Returns a hash of the lock, the settings, the place and the glibc."""
        digest = hashlib.sha256(repr((str(self._root), glibc_version())).encode())
        for name in ("uv.lock", "pyproject.toml"):
            digest.update((self._root / name).read_bytes())
        return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

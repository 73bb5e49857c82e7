"""Sets up the checkout: makes a working `.venv` from a fresh clone.

Runs on any `python3` from 3.7 on, without pip or venv. The script finds or installs uv
(see `uv_tool.py`), picks the newest stack that this machine's glibc and Pythons allow,
and syncs the lock with bytecode compiled. Every target of the Makefile calls it. After
a complete set-up, a stamp file makes the call return in a tenth of a second.

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
import time
from pathlib import Path
from typing import NamedTuple

import uv_tool

ROOT = Path(__file__).resolve().parent.parent
REPORT_SECONDS = 15
EXTRAS = ("examples",)  # Always installed, in addition to the extras of --extra.


class Stack(NamedTuple):
    """One set of versions in the lock.

    Attributes:
        name: Name for messages.
        glibc: Oldest glibc that the wheels support, such as `(2, 39)`.
        pythons: Versions of Python, in order of preference.
        compiles: Whether pyfarmhash has no wheel and is built from source.
    """

    name: str
    glibc: tuple
    pythons: tuple
    compiles: bool


# Newest first; the limits come from the wheels of ml-metadata and TFDV.
STACKS = (
    Stack("TFX 1.21", glibc=(2, 39), pythons=("3.13", "3.12", "3.11"), compiles=False),
    Stack("TFX 1.16", glibc=(2, 17), pythons=("3.10",), compiles=True),
)


class Python(NamedTuple):
    """An interpreter on this machine; `headers`: whether its Python.h exists."""

    version: str
    path: str
    headers: bool


class SetupError(Exception):
    """Something is missing; the message includes the command that installs it."""


def main(argv: list | None = None) -> int:
    """Sets up `.venv` unless it is complete; returns the exit code."""
    parser = argparse.ArgumentParser(description="Sets this checkout up into .venv.")
    parser.add_argument("--extra", action="append", default=[], metavar="NAME")
    asked = parser.parse_args(argv).extra
    stamp = Stamp(ROOT)
    extras = sorted({*EXTRAS, *asked, *stamp.extras()})
    try:
        if not stamp.holds(extras):
            set_up(stamp, extras)
    except (SetupError, uv_tool.UvError) as e:
        print(f"Set-up failed: {e}", file=sys.stderr)
        return 1
    print(f'Ready. For the shell: export PATH="{ROOT}/.venv/bin:$PATH"', flush=True)
    return 0


def set_up(stamp: Stamp, extras: list) -> None:
    """Checks the machine's requirements, then installs the lock into `.venv`.

    Args:
        stamp: Record of the set-up, written before and after.
        extras: All extras to install.

    Raises:
        SetupError: A requirement is missing, or uv failed.
        uv_tool.UvError: uv can neither be found nor installed.
    """
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
        SetupError: The lock has no wheels for this operating system or processor.
    """
    try:
        reported = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        reported = ""
    found = re.match(r"glibc (\d+)\.(\d+)", reported)
    if not found or platform.machine() != "x86_64":
        raise SetupError(
            f"TFX's native packages need Linux with glibc on x86_64; this is "
            f"{platform.system()} on {platform.machine()}"
            f"{'' if found else ' without glibc'}.\n"
            "  Use a container: docker run -it --platform linux/amd64 debian:13"
        )
    return int(found.group(1)), int(found.group(2))


def require_compiler(python: Python) -> None:
    """Checks for a C++ compiler on PATH if this Python's stack needs one.

    Raises:
        SetupError: The compiler is missing.
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
        glibc: Version of glibc, e.g. `(2, 36)`.
        find: Takes a version such as "3.13"; returns the list of installed Pythons.
        download: Takes a version that is not installed; returns the Python or raises
            SetupError.

    Raises:
        SetupError: No Python fits; the message includes the command to run.
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
    """Returns the error message for a Python without Python.h."""
    package = f"python{python.version}"
    return (
        f"Python {python.version} ({python.path}) is installed without its headers "
        "(Python.h); pyfarmhash, a dependency of TFX, is built from source.\n"
        f"  {install_command(package + '-dev', package + '-devel')}"
    )


def find_pythons(version: str, uv_folder: str) -> list:
    """Returns the Pythons of this version: uv's, then those on PATH, then pyenv's.

    Args:
        version: E.g. "3.13".
        uv_folder: The folder of uv's Pythons, see `uv_pythons`.
    """
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
    """Runs an interpreter to identify it.

    Args:
        version: The version expected.
        path: The interpreter.

    Returns:
        The Python; None if it does not run (a pyenv shim), is another version, is not
        CPython, or belongs to a virtual environment.
    """
    probed = subprocess.run(
        [path, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if probed.returncode:
        return None
    facts = json.loads(probed.stdout.decode())
    if not facts["plain"] or facts["version"] != version:
        return None
    return Python(version, path, facts["headers"])


def uv_pythons(uv: Path) -> str:
    """Returns the folder of the Pythons that uv manages."""
    listed = subprocess.run([str(uv), "python", "dir"], stdout=subprocess.PIPE)
    return listed.stdout.decode().strip()


def download_python(uv: Path, version: str) -> Python:
    """Downloads a Python by uv, including its headers.

    Raises:
        SetupError: The download failed; the message includes the command to run.
    """
    print(f"Python {version} is not installed: downloading it with uv", flush=True)
    command = [str(uv), "python", "install", "--no-bin", version]
    installed = subprocess.run(command, stderr=subprocess.PIPE)
    found = find_pythons(version, uv_pythons(uv)) if installed.returncode == 0 else []
    if found:
        return found[0]
    installer = "pyenv" if shutil.which("pyenv") else f"{uv} python"
    causes = installed.stderr.decode().replace("cause: ", "").strip().splitlines()
    raise SetupError(
        f"Python {version} is missing, and uv could not download it "
        f"({causes[-1].strip() if causes else 'no reason given'}).\n"
        f"  Run on a network that allows the download: {installer} install {version}"
    )


def sync(uv: Path, python: Python, extras: list) -> None:
    """Installs the lock into `.venv`, with bytecode compiled.

    Raises:
        SetupError: uv failed.
    """
    command = [str(uv), "sync", "--frozen", "--compile-bytecode"]
    command += ["--python", python.path]
    for extra in extras:
        command += ["--extra", extra]
    if not sys.stderr.isatty():
        command.append("--quiet")
    # Ignore the caller's active environment: uv would install into it.
    mine = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONHOME", "PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k not in mine}
    code = _reported(subprocess.Popen(command, cwd=str(ROOT), env=env))
    if code:
        raise SetupError(
            f"uv failed with exit code {code}; its output is above. To try again:\n"
            f"  Run: make setup"
        )


def _reported(process: subprocess.Popen) -> int:
    """Waits for uv and returns its exit code; prints a line while uv prints none.

    uv draws bars in a terminal while it downloads and installs, but nothing while it
    compiles bytecode, and nothing at all in a log.
    """
    started, before = time.monotonic(), 0
    while True:
        try:
            return process.wait(timeout=REPORT_SECONDS)
        except subprocess.TimeoutExpired:
            packages = len(glob.glob(f"{ROOT}/.venv/lib/*/site-packages/*.dist-info"))
        at_end = 0 < packages == before
        if at_end or not sys.stderr.isatty():
            doing = "compiling bytecode" if at_end else f"{packages} packages installed"
            seconds = time.monotonic() - started
            print(f"  {seconds:.0f} s: {doing}", file=sys.stderr, flush=True)
        before = packages


class Stamp:
    """Record of the inputs of `.venv`, in a file inside it."""

    def __init__(self, root: Path):
        self._root = root
        self._file = root / ".venv" / "strategos-setup.json"

    def extras(self) -> list:
        """Returns the extras installed so far, which stay when the lock changes."""
        return self._read().get("extras", [])

    def holds(self, extras: list) -> bool:
        """Returns whether `.venv` is complete for this lock and these extras."""
        runs = all(
            (self._root / ".venv" / "bin" / name).exists()
            for name in ("python", "strategos")
        )
        return runs and self._read() == {"made from": self._inputs(), "extras": extras}

    def write(self, extras: list, finished: bool) -> None:
        """Records a set-up, before it starts and at its end.

        Args:
            extras: The extras of this set-up.
            finished: Whether the set-up is complete.
        """
        made_from = self._inputs() if finished else None
        if self._file.parent.exists():  # uv rejects a folder that it did not create.
            stamp = {"made from": made_from, "extras": extras}
            self._file.write_text(json.dumps(stamp))

    def _read(self) -> dict:
        try:
            return json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}

    def _inputs(self) -> str:
        """Returns a hash of uv.lock, pyproject.toml, the checkout's path and glibc."""
        digest = hashlib.sha256(repr((str(self._root), glibc_version())).encode())
        for name in ("uv.lock", "pyproject.toml"):
            digest.update((self._root / name).read_bytes())
        return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

"""Checks of this machine, each with a remedy: `strategos doctor`.

They take about a second: TensorFlow is started only if a GPU driver is installed.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import UserError, first_line
from strategos.components.trainer.distribution.environment import TPU_VARIABLES
from strategos.components.wording import counted
from strategos.pipeline.view import quiet

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_CHECKOUT = Path(__file__).resolve().parents[2]
_NEW_STACK_GLIBC = (2, 39)  # The version that ml-metadata and TFDV 1.21 need.
_MIN_FREE_GB = 5
_TENSORFLOW_SECONDS = 120


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
      name: The subject of the check, e.g. "Python" or "GPU".
      ok: True: works. False: must be fixed. None: absent, optional.
      found: The finding, e.g. "1 GPU (NVIDIA driver 550.54)".
      remedy: How to fix it; None if no fix is possible or needed.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str | None = None


def diagnose(config_path: str | None = None) -> list[MachineCheck]:
    """Runs all checks.

    Args:
      config_path: A pipeline's YAML; its ML Metadata and root are checked too.
    """
    config, problem = _load(config_path)
    return [
        *filter(None, [problem]),
        python(),
        stack(),
        glibc(),
        compiler(),
        bytecode(),
        gpu(),
        tpu(os.environ),
        flink(os.environ),
        metadata(config),
        disk(config.run.root if config else os.getcwd()),
    ]


def render(checks: list[MachineCheck]) -> str:
    """Formats checks as text: a line each, remedies below, a verdict at the end."""
    from strategos.pipeline.view import terminal

    console = terminal.console()
    states = {True: "complete", False: "failed", None: "pending"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        sign = terminal.symbol(states[check.ok], console).plain
        lines.append(f"{sign} {check.name:{width}}  {check.found}")
        for line in (check.remedy or "").splitlines():
            lines.append(f"  {'':{width}}  -> {line}")
    wrong = sum(check.ok is False for check in checks)
    things = counted(wrong, "thing needs", "things need")
    lines += ["", f"{things} fixing." if wrong else "Nothing is missing."]
    return "\n".join(lines)


def python() -> MachineCheck:
    """Whether this interpreter's version is supported."""
    version = f"{platform.python_version()} ({sys.executable})"
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return MachineCheck("Python", True, version)
    return MachineCheck("Python", False, version, "Use Python 3.10 to 3.13: make setup")


def stack(
    required: list[str] | None = None,
    version_of: Callable[[str], str] = importlib.metadata.version,
) -> MachineCheck:
    """Whether the installed packages meet the requirements of Strategos.

    Args:
      required: Requirements with markers; by default the ones of Strategos.
      version_of: Maps a package's name to its version; raises PackageNotFoundError.
    """
    from packaging.requirements import Requirement

    if required is None:
        required = importlib.metadata.requires("strategos") or []
    wrong, versions = [], {}
    for requirement in map(Requirement, required):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            versions[requirement.name] = version_of(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if versions[requirement.name] not in requirement.specifier:
            wrong.append(
                f"{requirement.name} is {versions[requirement.name]}, but Strategos "
                f"needs {requirement.specifier}"
            )
    if wrong:
        return MachineCheck("stack", False, "; ".join(wrong), _install())
    shown = (("tfx", "TFX"), ("tensorflow", "TensorFlow"), ("apache-beam", "Beam"))
    summary = ", ".join(f"{t} {versions[n]}" for n, t in shown if n in versions)
    return MachineCheck("stack", True, summary)


def glibc(
    version: tuple[int, int] | None = None, newer: bool | None = None
) -> MachineCheck:
    """Whether the C library fits the stack.

    Args:
      version: E.g. `(2, 36)`; this machine's by default.
      newer: Whether this is the newer stack, of Python 3.11 and later.
    """
    version = version or _glibc_version()
    newer = sys.version_info >= (3, 11) if newer is None else newer
    installed = "{}.{}".format(*version)
    if newer and version < _NEW_STACK_GLIBC:
        remedy = "TFX 1.21 needs 2.39 (Debian 13, Ubuntu 24.04): use Python 3.10"
        return MachineCheck("glibc", False, installed, remedy)
    if not newer and version >= _NEW_STACK_GLIBC:
        remedy = "The newer stack (TFX 1.21, Python 3.13) would run here: make setup"
        return MachineCheck("glibc", True, installed, remedy)
    return MachineCheck("glibc", True, installed)


def compiler(
    which: Callable[[str], str | None] = shutil.which,
    include: str = sysconfig.get_config_var("INCLUDEPY") or "",
    installed: bool | None = None,
) -> MachineCheck:
    """Whether pyfarmhash can be built; optional once pyfarmhash is installed.

    Args:
      which: Maps a program's name to its path, or None.
      include: The folder of Python's headers.
      installed: Whether pyfarmhash is installed; looked up by default.
    """
    if installed is None:
        installed = importlib.util.find_spec("farmhash") is not None
    program = next(filter(None, map(which, ("c++", "g++", "clang++"))), None)
    headers = os.path.exists(f"{include}/Python.h")
    if program and headers:
        return MachineCheck("compiler", True, f"{program}, with Python's headers")
    lacking = {} if program else {"no C++ compiler": "g++"}
    if not headers:
        lacking["no Python.h"] = "python{}.{}-dev".format(*sys.version_info)
    problem = " and ".join(lacking)
    if installed:
        note = f"{problem}; needed only to build pyfarmhash"
        return MachineCheck("compiler", None, note)
    remedy = f"apt-get install -y {' '.join(lacking.values())}"
    return MachineCheck("compiler", False, problem, remedy)


def bytecode(
    packages: tuple[str, ...] = ("tensorflow", "tfx", "apache_beam"),
    writes: bool | None = None,
) -> MachineCheck:
    """Whether packages are compiled to bytecode; if not, every process compiles them.

    Args:
      packages: Names of packages to check.
      writes: Whether imports save bytecode; by default, this interpreter's setting.
    """
    writes = not sys.dont_write_bytecode if writes is None else writes
    specs = filter(None, map(importlib.util.find_spec, packages))
    raw = [spec.name for spec in specs if not os.path.exists(spec.cached or "")]
    if not raw:
        return MachineCheck("bytecode", True, "compiled")
    state = f"{', '.join(raw)} not compiled"
    if writes:
        return MachineCheck("bytecode", None, f"{state} yet: the first import is slow")
    return MachineCheck(
        "bytecode",
        False,
        f"{state}, and PYTHONDONTWRITEBYTECODE is set: every process imports 3 times "
        "slower",
        f"{sys.executable} -m compileall -q {sysconfig.get_path('purelib')}",
    )


def gpu(
    driver: str | None = None,
    count: Callable[[], tuple[int, str]] | None = None,
    libraries: bool | None = None,
) -> MachineCheck:
    """Whether TensorFlow sees the GPUs, if an NVIDIA driver is installed.

    Args:
      driver: The driver's version, "" for none; looked up by default.
      count: Returns the number of GPUs that TensorFlow sees, and its log.
      libraries: Whether the extra `gpu` is installed; looked up by default.
    """
    driver = _nvidia_driver() if driver is None else driver
    if not driver:
        note = "no NVIDIA driver: training uses the processor"
        return MachineCheck("GPU", None, note)
    seen, logged = (count or _count_gpus)()
    if seen:
        gpus = counted(seen, "GPU")
        return MachineCheck("GPU", True, f"{gpus} (NVIDIA driver {driver})")
    if libraries is None:
        libraries = any(
            re.match(r"nvidia[-_]cudnn", package.name or "")
            for package in importlib.metadata.distributions()
        )
    state = f"NVIDIA driver {driver}, but TensorFlow sees no GPU"
    if not libraries:
        remedy = "make setup EXTRAS=gpu   (that is: uv sync --inexact --extra gpu)"
        if not (_CHECKOUT / "Makefile").exists():
            remedy = "pip install 'strategos[gpu]'"
        return MachineCheck("GPU", False, state, remedy)
    return MachineCheck(
        "GPU",
        False,
        f"{state}: {logged or 'it logs no reason'}",
        "The CUDA libraries are installed: check that `nvidia-smi` lists the GPU, and "
        "that CUDA_VISIBLE_DEVICES does not hide it; a newer driver may be needed.",
    )


def tpu(environ: Mapping[str, str], devices: list[str] | None = None) -> MachineCheck:
    """Whether the environment names a TPU, or one is attached.

    Args:
      environ: The environment.
      devices: Device files of attached TPUs; looked up by default.
    """
    named = [f"{name}={environ[name]}" for name in TPU_VARIABLES if environ.get(name)]
    devices = glob.glob("/dev/accel[0-9]*") if devices is None else devices
    if not named and not devices:
        return MachineCheck("TPU", None, "none")
    names = ", ".join([*named, *devices])
    if devices and importlib.util.find_spec("libtpu") is None:
        remedy = "Install TensorFlow's TPU build, or use a TPU VM's own image."
        return MachineCheck("TPU", False, f"{names}, but no libtpu", remedy)
    return MachineCheck("TPU", True, names)


def flink(environ: Mapping[str, str] = os.environ) -> MachineCheck:
    """Whether Flink's Java and jars are installed, which only `run.engine` needs.

    Args:
      environ: The environment.
    """
    from strategos.components.shards.flink import jars, java

    try:
        program, folder = java.program(environ=environ), jars.find(environ)
    except UserError as error:
        note = f"only `run.engine.runner: flink` needs it: {error.headline}"
        return MachineCheck("Flink", None, note)
    return MachineCheck(
        "Flink", True, f"Java {java.release(program)} ({program}), {folder}"
    )


def metadata(config: Config | None) -> MachineCheck:
    """Whether ML Metadata answers; `config` is None if no pipeline was named."""
    if config is None:
        return MachineCheck("metadata", None, "not checked: name a pipeline.yaml")
    from strategos.pipeline.root.metadata import of, reach, sqlite_file, unusable

    run = config.run
    if run.metadata == "sqlite":
        place = str(sqlite_file(run.root))
        if not os.path.exists(place):
            return MachineCheck("metadata", None, f"{place}: created by the first run")
    else:
        place = run.metadata
    server = of(config)
    try:
        reach(server)
        import ml_metadata

        types = len(ml_metadata.MetadataStore(server).get_artifact_types())
    except Exception as error:
        problem = unusable(server, error)
        return MachineCheck("metadata", False, problem.headline, problem.remedy)
    return MachineCheck("metadata", True, f"{place} ({types} types of artifacts)")


def disk(root: str, free: int | None = None) -> MachineCheck:
    """Whether the pipeline root can be written, and has enough free space.

    Args:
      root: A folder, which need not exist yet, or a URL.
      free: Free bytes; by default, as the file system reports.
    """
    from strategos.components.files.filesystems import is_remote

    if is_remote(root):
        return MachineCheck("disk", None, f"{root}: not on this machine")
    place = Path(root).absolute()
    existing = next(p for p in (place, *place.parents) if p.is_dir())
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "Make it writable, or name another `run.root`."
        return MachineCheck("disk", False, f"{existing} cannot be written", remedy)
    free_gb = (shutil.disk_usage(existing).free if free is None else free) / 1e9
    room = f"{free_gb:.0f} GB free at {existing}"
    if free_gb >= _MIN_FREE_GB:
        return MachineCheck("disk", True, room)
    remedy = f"Make room ({_MIN_FREE_GB} GB), or name another `run.root`."
    return MachineCheck("disk", False, room, remedy)


def _load(config_path: str | None) -> tuple[Config | None, MachineCheck | None]:
    if config_path is None:
        return None, None
    from strategos.pipeline.config import loading

    try:
        return loading.load(config_path).config, None
    except UserError as error:
        remedy = f"strategos validate {config_path}"
        return None, MachineCheck("pipeline", False, first_line(error), remedy)


def _install() -> str:
    if (_CHECKOUT / "Makefile").exists():
        return "make setup"
    return "pip install --force-reinstall strategos"


def _glibc_version() -> tuple[int, int]:
    match = re.match(r"glibc (\d+)\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def _nvidia_driver() -> str:
    """The version of NVIDIA's kernel driver, "" for none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
        return re.findall(r"\d+(?:\.\d+)+", text)[0]
    except (OSError, IndexError):
        pass  # Under WSL the driver belongs to Windows, but nvidia-smi exists.
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else first_line(done.stdout)


def _count_gpus() -> tuple[int, str]:
    """Counts GPUs by TensorFlow in a new process; also returns its last log line."""
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    env = {**os.environ, **quiet.environment(), "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=env,
            timeout=_TENSORFLOW_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 0, f"it did not start within {_TENSORFLOW_SECONDS} s"
    about = [line for line in done.stderr.splitlines() if re.search("(?i)cu|gpu", line)]
    reason = re.sub(r"^.*?\] ", "", about[-1]) if about else ""
    last = done.stdout.strip().splitlines()[-1:]
    return (int(last[0]) if last and last[0].isdigit() else 0), reason

"""The programs of the cluster, built from pinned Go modules into the user's cache.

Each folder of `programs/` is a Go module of its own: `go.sum` pins every source. The
first build takes about 25 minutes of CPU time and 8 GB of disk space, of which 0.6 GB
remain.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from failures import ClusterError

SOURCES = Path(__file__).parent / "programs"
KUBERNETES = "1.34.4"
_ARGO = "github.com/argoproj/argo-workflows/v3"
_KFP = "github.com/kubeflow/pipelines"
_SOURCES = f"{_KFP}/backend/src"
_SCHEDULES = f"{_SOURCES}/crd/controller/scheduledworkflow"
_OPERATOR = "github.com/kubeflow/training-operator"
_OPERATOR_MAIN = f"{_OPERATOR}/cmd/training-operator.v1"
_JOBSET = "sigs.k8s.io/jobset"
_VERSION = "k8s.io/component-base/version"
_STAMPS = (
    f" -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1"
    f" -X {_VERSION}.gitMinor=34"
)


class Program(NamedTuple):
    """A program to build.

    Attributes:
      module: Its folder in `programs/`.
      name: The name of the binary.
      package: The Go package.
      flags: Further flags of the linker.
    """

    module: str
    name: str
    package: str = "."
    flags: str = ""


# In this order, so that CoreDNS finds the client of Kubernetes already compiled.
PROGRAMS = (
    Program("kubernetes", "kubernetes", flags=_STAMPS),
    Program("coredns", "coredns"),
    Program("pause", "pause"),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("training_operator", "training-operator", _OPERATOR_MAIN),
    Program("jobset", "jobset", _JOBSET),
    Program("kfp", "kfp-api-server", f"{_SOURCES}/apiserver"),
    Program("kfp", "driver", f"{_SOURCES}/v2/cmd/driver"),
    Program("kfp", "launcher-v2", f"{_SOURCES}/v2/cmd/launcher-v2"),
    Program("kfp", "kfp-persistence-agent", f"{_SOURCES}/agent/persistence"),
    Program("kfp", "kfp-scheduled-workflow", _SCHEDULES),
    Program("argo", "argoexec", f"{_ARGO}/cmd/argoexec"),
    Program("argo", "workflow-controller", f"{_ARGO}/cmd/workflow-controller"),
)

# CPU time of a build after those before it; 15 for others.
_SECONDS = {
    **{"kubernetes": 440, "coredns": 90, "pause": 1, "etcd": 42},
    **{"training-operator": 130, "jobset": 60, "kfp-api-server": 180},
    **{"argoexec": 280, "workflow-controller": 35},
}

# The API server contains SQLite; the others of its module share what it compiled.
_WITH_C = ("kfp",)
_OPTIONS = ("-trimpath", "-buildvcs=false")
# Nothing calls SQLite here: compiling it well would take a minute.
_VARIABLES = {"GOFLAGS": "", "GOTOOLCHAIN": "local", "CGO_CFLAGS": "-O0 -w"}

# What Go says if it cannot download; nothing that a compiler says.
_OFFLINE = re.compile(r"dial (tcp|udp)|i/o timeout|TLS handshake|: unexpected EOF")
_ATTEMPTS = 3

# Custom resource definitions: the module, the Go module they come in, and where.
DEFINITIONS = (
    ("argo", _ARGO, "manifests/base/crds/minimal/argoproj.io_*.yaml"),
    ("kfp", _KFP, "manifests/kustomize/base/pipeline/cluster-scoped/scheduled-*.yaml"),
    ("training_operator", _OPERATOR, "manifests/base/crds/kubeflow.org_tfjobs.yaml"),
    ("jobset", _JOBSET, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
)


def folder() -> Path:
    """The folder of the programs (`bin`) and definitions (`definitions`).

    STRATEGOS_CACHE or XDG_CACHE_HOME moves the cache.
    """
    sources = [each.read_bytes() for each in sorted(SOURCES.rglob("*.*"))]
    plan = repr((PROGRAMS, DEFINITIONS, _WITH_C, _OPTIONS, _VARIABLES))
    digest = hashlib.sha256(b"".join([*sources, plan.encode()]))
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("STRATEGOS_CACHE") or os.path.join(home, "strategos")
    return Path(cache, f"cluster-{KUBERNETES}-{digest.hexdigest()[:12]}").absolute()


def build(limit: float | None = None) -> Path:
    """Builds all programs, unless they exist.

    Finished programs are kept if the build is interrupted; the folder gets its final
    name when it is complete.

    Args:
      limit: Seconds after which the build is interrupted; None for no limit.

    Returns:
      The folder.

    Raises:
      ClusterError: Go failed, such as for want of disk space; the exit code is 2 if it
        could not download a module, or took longer than `limit`.
    """
    target = folder()
    if target.is_dir():
        return target
    try:
        with _deadline(limit):
            _build_all(target)
    except _LateError:
        print(flush=True)  # after what is being built
        raise ClusterError(
            f"the programs were not built within {limit:g} s (--limit): finished ones "
            "are kept for the next time; or build them now: tests/lab/kubernetes build",
            exit_code=2,
        ) from None
    return target


class _LateError(Exception):
    """The limit is over."""


@contextlib.contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Interrupts its body by a _LateError after so many seconds."""

    def end(*_: object) -> NoReturn:
        raise _LateError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _build_all(target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    (part / "bin").mkdir(parents=True, exist_ok=True)
    missing = [each for each in PROGRAMS if not (part / "bin" / each.name).exists()]
    with tempfile.TemporaryDirectory(dir=part, prefix="go-build-") as compiled:
        begun = time.monotonic()
        for at, program in enumerate(missing):
            begin = time.monotonic()
            number, left = (
                PROGRAMS.index(program) + 1,
                _left(missing, at, begin - begun),
            )
            about = f"{number} of {len(PROGRAMS)}, {left}"
            print(f"Building {program.name} ({about})", end=" ", flush=True)
            _build(program, part / "bin" / program.name, Path(compiled))
            print(f"{time.monotonic() - begin:.0f} s", flush=True)
    for file in _definitions():
        (part / "definitions").mkdir(exist_ok=True)
        shutil.copyfile(file, part / "definitions" / file.name)
    part.rename(target)


def _left(programs: Sequence[Program], done: int, spent: float) -> str:
    """`about 12 min left`, by the pace of this build.

    Args:
      programs: What this build makes, in order.
      done: Number of them that are built.
      spent: Seconds since its beginning.
    """
    costs = [_SECONDS.get(each.name, 15) for each in programs]
    built = sum(costs[:done])
    # At first as if all cores were idle.
    pace = spent / built if built else 1 / (os.cpu_count() or 1)
    left = pace * sum(costs[done:])
    return f"about {max(1, round(left / 60))} min left"


def _build(program: Program, binary: Path, compiled: Path) -> None:
    source = SOURCES / program.module
    options = [*_OPTIONS, "-ldflags", f"-s -w{program.flags}"]
    if program.module == "argo":
        source = _with_signals(compiled)
        options += ["-mod=vendor", "-overlay", str(source / "overlay.json")]
    unfinished = binary.with_name(f".{program.name}.part")
    environment = {
        "CGO_ENABLED": str(int(program.module in _WITH_C)),
        "GOCACHE": str(compiled),
    }
    command = ["go", "build", *options, "-o", str(unfinished), program.package]
    _go(command, source, environment)
    unfinished.rename(binary)


def _with_signals(compiled: Path) -> Path:
    """Makes a copy of Argo's module that compiles.

    The published module lacks `signal_linux.go`, a symbolic link in its repository; the
    link's target is there. A file of a module can only be replaced if it is vendored.
    """
    copy = compiled / "argo"
    if not copy.exists():
        shutil.copytree(SOURCES / "argo", copy)
        _go(["go", "mod", "vendor"], copy, {})
    signals = f"{copy}/vendor/{_ARGO}/workflow/executor/osspecific/signal_"
    replaced = {f"{signals}linux.go": f"{signals}darwin.go"}
    (copy / "overlay.json").write_text(json.dumps({"Replace": replaced}))
    return copy


def _definitions() -> Iterator[Path]:
    for module, package, pattern in DEFINITIONS:
        command = ["go", "list", "-m", "-f", "{{.Dir}}", package]
        source = _go(command, SOURCES / module, {}).strip()
        yield from sorted(Path(source).glob(pattern))


def _go(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Runs Go, several times if it cannot download; returns what it prints.

    Raises:
      ClusterError: Go failed.
    """
    for _ in range(_ATTEMPTS):
        code, output, problems = _run(command, folder, environment)
        if code == 0:
            return output
        lines = [line for line in problems.splitlines() if "downloading" not in line]
        is_offline = any(_OFFLINE.search(line) for line in lines)
        if not is_offline:
            break
    raise ClusterError(
        f"`{' '.join(command)}` failed in {folder}:\n" + "\n".join(lines[-10:]),
        exit_code=2 if is_offline else 1,
    )


def _run(
    command: list[str], folder: Path, environment: dict[str, str]
) -> tuple[int, str, str]:
    """Runs a command; returns its exit code, output, and errors.

    An interruption ends its compilers, too, before the folder that they write to goes.
    """
    started = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **_VARIABLES, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, problems = started.communicate()
    except BaseException:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        raise
    return started.returncode, output, problems

"""The namespaces that contain the cluster: start, enter, end.

The first process of a PID namespace takes all others of it along when it dies, however
it dies. With the last process go the network namespace, with its interfaces and
packet filter rules, and the mount namespace, with all mounts. What remains are empty
control groups and a folder, which `stop` removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from failures import ClusterError

HOST = "10.250.0.1"
"""This machine in the cluster's network."""

API_SERVER = f"https://{HOST}:6443"
OBJECT_STORE = f"http://{HOST}:9000"
PIPELINES = "http://10.96.0.20:8888"  # the Service of manifests/pipelines.yaml
PODS_GROUP, SERVERS_GROUP = "k8s.io", "strategos-cluster"  # control groups
_GROUPS = "control-groups-before"
_LONGEST = 68  # The kubelet's sockets in the folder may have 107 characters.
_START_SECONDS = 900
_STOP_SECONDS = 60


def folder() -> Path:
    """The folder of the cluster's state and logs, by the XDG standard."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "strategos", "cluster").absolute()


def kubeconfig() -> Path:
    """The administrator's file for clients of the API server."""
    return folder() / "certificates" / "admin.conf"


def is_running() -> bool:
    """Whether the cluster is ready."""
    return _first_process() is not None and (folder() / "ready").exists()


def check() -> None:
    """Rejects a folder in which the cluster cannot start.

    Raises:
      ClusterError: Its path is too long.
    """
    state = folder()
    if len(bytes(state)) > _LONGEST:
        raise ClusterError(
            f"{state} is too long for the path of a socket: set XDG_STATE_HOME so that "
            f"it has at most {_LONGEST} characters",
            exit_code=2,
        )


def start(programs: Path) -> None:
    """Starts the cluster and waits until it is ready.

    Args:
      programs: The folder that `programs.build` returned.

    Raises:
      ClusterError: A part did not start; all parts are ended.
    """
    state = folder()
    stop()
    state.mkdir(parents=True, mode=0o700)
    (state / _GROUPS).write_text("\n".join(_control_groups()))
    log = state / "start.log"
    # The shell writes its PID before anything else: a killed starter leaves a trace.
    script = 'echo $$ > "$1/pid.tmp" && mv "$1/pid.tmp" "$1/pid" && shift && exec "$@"'
    spaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    main = Path(__file__).with_name("first_process.py")
    first = [sys.executable, "-W", "ignore", main, state, programs]
    with log.open("w") as out:
        started = subprocess.Popen(
            ["sh", "-c", script, "sh", state, "unshare", *spaces, *first],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with log.open() as lines:
            _wait(lambda: _is_decided(started, state, lines), _START_SECONDS)
        if not (state / "ready").exists():
            raise ClusterError(f"did not start; logs are in {state}/logs")
    except BaseException:
        _kill()
        raise


def stop() -> None:
    """Ends the cluster, whatever state it is in, and removes its folder.

    Raises:
      ClusterError: A process did not end.
    """
    _kill()
    state = folder()
    _remove_control_groups(state)
    shutil.rmtree(state, ignore_errors=True)


def run(words: Sequence[str]) -> NoReturn:
    """Becomes a command in the cluster's network, so that signals reach it.

    Args:
      words: The command; it gets KUBECONFIG.

    Raises:
      ClusterError: The cluster does not run.
    """
    first = _required()
    enter = ["nsenter", f"--net=/proc/{first}/ns/net", "--", *words]
    os.execvpe(enter[0], enter, {**os.environ, "KUBECONFIG": str(kubeconfig())})


def containers() -> Path:
    """The folder of containerd.

    Raises:
      ClusterError: The cluster does not run.
    """
    _required()
    return folder() / "containerd"


def _required() -> int:
    """The first process of a cluster that is ready."""
    first = _first_process()
    if first is None or not is_running():
        raise ClusterError("does not run; start it with: make cluster", exit_code=2)
    return first


def _is_decided(started: subprocess.Popen, state: Path, lines) -> bool:
    sys.stdout.write(lines.read())
    sys.stdout.flush()
    return started.poll() is not None or (state / "ready").exists()


def _parent() -> int | None:
    """The PID of `unshare`, which made the namespaces; None if it has ended."""
    try:
        found = int((folder() / "pid").read_text())
        words = Path(f"/proc/{found}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    # Otherwise the PID is another process's by now.
    return found if bytes(folder()) in words else None


def _first_process() -> int | None:
    """The PID, outside, of the namespace's first process; None without one."""
    parent = _parent()
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _kill() -> None:
    """Kills the first process, and waits until the last one has gone."""
    parent, first = _parent(), _first_process()
    if parent is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first or parent, signal.SIGKILL)
    if first is not None:
        # A first process is reaped only after all others of its namespace.
        _wait(lambda: not Path(f"/proc/{first}").exists(), _STOP_SECONDS)
    _wait(lambda: _parent() is None, _STOP_SECONDS)  # it is in the namespaces, too
    _wait(lambda: not _is_used(folder()), _STOP_SECONDS)


def _is_used(state: Path) -> bool:
    """Whether a process with a path in the cluster's folder is in a namespace."""
    own = os.readlink("/proc/self/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            is_inside = os.readlink(process / "ns" / "pid") != own
            words = (process / "cmdline").read_bytes()
            if is_inside and b"%b/" % bytes(state) in words:
                return True
    return False


def _control_groups() -> list[str]:
    """Control groups of pods and servers, of this cluster and of others."""
    top = Path("/sys/fs/cgroup")
    found = [*top.glob(f"**/{PODS_GROUP}"), *top.glob(f"**/{SERVERS_GROUP}")]
    return [folder for top in found for folder, _, _ in os.walk(top, topdown=False)]


def _remove_control_groups(state: Path) -> None:
    """Removes the control groups that are new since the start, and empty."""
    try:
        before = set((state / _GROUPS).read_text().splitlines())
    except FileNotFoundError:  # nothing was started
        return
    for group in _control_groups():
        # An empty one of servers is left over by the first of two clusters that ended.
        if group not in before or group.endswith(SERVERS_GROUP):
            with contextlib.suppress(OSError):  # in use by another cluster
                os.rmdir(group)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(
                f"is not done after {seconds:.0f} s; logs: {folder()}/logs"
            )
        time.sleep(0.1)

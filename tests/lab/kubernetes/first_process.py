"""The first process of the cluster's namespaces: starts all parts, keeps them running.

python first_process.py STATE PROGRAMS
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import certificates
import control_plane
import installation
import node
import services
from failures import ClusterError
from sandbox import PODS_GROUP, SERVERS_GROUP
from servers import Servers

# Folders that containerd and the kubelet write to at fixed places.
_PRIVATE = (
    "/run",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
# Settings of the whole machine that the kubelet insists on; it gets files of its own.
_KERNEL = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}

# Weights of the cluster's control groups, in versions 1 and 2 of control groups, where
# a program that a user starts in a terminal weighs 1024 and 100.
_WEIGHTS = {
    "/sys/fs/cgroup/cpu": ("cpu.shares", "4096"),
    "/sys/fs/cgroup": ("cpu.weight", "400"),
}


def main() -> int:
    """Starts all parts and keeps them running; ends if one does not start."""
    state, programs = map(Path, sys.argv[1:])
    begin = time.monotonic()

    def report(what: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

    servers = Servers(state / "logs")
    _share_processors()
    try:
        _make_private(state)
        _make_network()
        certificates.make(state / "certificates")
        services.start(servers, state)
        control_plane.start(servers, state, programs / "bin")
        report("API server ready")
        node.start(servers, state, programs / "bin")
        services.wait(servers, state)
        report("MariaDB, S3 and ML Metadata ready")
        node.wait(servers, state)
        report("node ready")
        installation.install(state, programs / "definitions")
        report("Kubeflow ready")
    except ClusterError as error:
        print(f"cluster: {error}", flush=True)
        return 1
    (state / "ready").touch()
    servers.keep()


def _share_processors() -> None:
    """Moves this process, and so all servers, into a control group beside the pods'.

    All pods are in one group, and would get what the kernel gives to a single program.
    Servers outside of groups would starve beside busy pods, of other clusters, too.
    """
    for top, (file, weight) in _WEIGHTS.items():
        if Path(top, "cgroup.procs").exists():
            with contextlib.suppress(OSError):  # version 1
                Path(top, "cgroup.subtree_control").write_text("+cpu")
            for group in (PODS_GROUP, SERVERS_GROUP):
                with contextlib.suppress(OSError):  # a container with a part of them
                    Path(top, group).mkdir(exist_ok=True)
                    Path(top, group, file).write_text(weight)
            with contextlib.suppress(OSError):
                Path(top, SERVERS_GROUP, "cgroup.procs").write_text("0")


def _make_private(state: Path) -> None:
    """Makes the mounts that keep what the cluster writes off the machine."""
    _call("mount", "--make-rshared", "/")
    for path in _PRIVATE:
        Path(path).mkdir(parents=True, exist_ok=True)
        _call("mount", "-t", "tmpfs", "cluster", path)
    kernel = state / "kernel"
    for name, value in _KERNEL.items():
        if Path("/proc/sys", name).exists():
            file = kernel / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
            _call("mount", "--bind", file, f"/proc/sys/{name}")


def _make_network() -> None:
    """Makes the bridge that all pods and this machine's servers share."""
    bridge = node.BRIDGE
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", bridge, "type", "bridge")
    _call("ip", "addr", "add", f"{node.HOST}/16", "dev", bridge)
    _call("ip", "link", "set", bridge, "up")
    _call("ip", "route", "add", "default", "via", node.HOST, "dev", bridge)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Without it, an answer from a pod behind a Service bypasses the packet filter.
    filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not filtered.exists():
        _call("modprobe", "br_netfilter")
    filtered.write_text("1")


def _call(*words: str | Path) -> None:
    command = " ".join(map(os.fspath, words))
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise ClusterError(f"`{command}` failed: {error}") from None
    if done.returncode:
        raise ClusterError(f"`{command}` failed: {done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())

"""What the cluster needs from this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from failures import ClusterError

GO = (1, 25)
PLUGINS = Path("/usr/lib/cni")
CHECKOUT = Path(__file__).parents[3]
_PROGRAMS = {
    "ip": "iproute2",
    "iptables": "iptables",
    "mariadbd": "mariadb-server",
    "nsenter": "util-linux",
    "runc": "runc",
    "containerd": "containerd",
    "ctr": "containerd",
}
# What the first process does with the kernel, in namespaces that end with the probe.
_PROBE = """
mount --make-rshared /
mount -t tmpfs probe /run
mount --bind /dev/null /proc/sys/vm/panic_on_oom
for top in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
  [ ! -e $top/cgroup.procs ] || [ -w $top/cgroup.procs ] || { echo $top; exit 1; }
done
! command -v ip > /dev/null || ip link add probe type bridge
! command -v iptables > /dev/null || iptables -t nat -N probe
[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || modprobe br_netfilter
"""
_COMPILER = {"gcc": "gcc libc6-dev"}
_MODULES = ("cryptography", "moto", "flask_cors", "grpc", "ml_metadata", "requests")


def check(builds: bool) -> None:
    """Checks everything, and lists all that is missing.

    Args:
      builds: Whether programs are still to be built, which takes Go and a C compiler.

    Raises:
      ClusterError: Something is missing; its exit code is 2.
    """
    missing = [problem for problem in (_root(), _packages(builds)) if problem]
    if builds and (problem := _go()):
        missing.append(problem)
    absent = [each for each in _MODULES if importlib.util.find_spec(each) is None]
    if absent:
        missing.append(
            f"the Python packages {', '.join(absent)}: run `make setup`, and start "
            "these scripts by .venv/bin/python"
        )
    if CHECKOUT.is_relative_to("/tmp"):
        missing.append(
            f"a place for the checkout {CHECKOUT} that pods see under the same name: "
            "they have a /tmp of their own; move it"
        )
    if missing:
        lines = "".join(f"\n  - {problem}" for problem in missing)
        raise ClusterError(f"this machine lacks:{lines}", exit_code=2)


def _root() -> str:
    if os.geteuid() != 0:
        return "root: namespaces, mounts and the kubelet need it; use sudo"
    try:
        probe = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc"]
        probe += ["sh", "-ec", _PROBE]
        done = subprocess.run(probe, capture_output=True, text=True)
    except OSError as error:
        return f"unshare, of the package util-linux ({error})"
    if done.returncode:
        return (
            "the right to make namespaces, mounts, bridges, packet filter rules and "
            f"control groups ({done.stderr.strip() or done.stdout.strip()}): run in a "
            "virtual machine or a privileged container"
        )
    return ""


def _go() -> str:
    wanted = ".".join(map(str, GO))
    remedy = f"install Go {wanted} or newer from https://go.dev/dl"
    found = shutil.which("go")
    if not found:
        return f"go, which builds Kubernetes and Kubeflow: {remedy}"
    done = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True)
    version = re.match(r"go(\d+)\.(\d+)", done.stdout)
    if not version or tuple(map(int, version.groups())) < GO:
        return f"Go {wanted}; {found} is {done.stdout.strip() or 'broken'}: {remedy}"
    return ""


def _packages(builds: bool) -> str:
    programs = _PROGRAMS | (_COMPILER if builds else {})
    packages = {package for name, package in programs.items() if not shutil.which(name)}
    if not (PLUGINS / "bridge").exists():
        packages.add("containernetworking-plugins")
    if not packages:
        return ""
    names = " ".join(sorted(packages))
    return f"packages: run `RUNLEVEL=1 apt-get install -y {names}`"

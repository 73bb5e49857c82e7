"""A Kubernetes with Kubeflow on this machine, for tests and for trying out.

    tests/lab/kubernetes build          builds what is missing
    tests/lab/kubernetes up             builds what is missing, starts everything
    tests/lab/kubernetes load ARCHIVE   makes an image known to the cluster
    tests/lab/kubernetes run COMMAND…   runs a command in the network of the cluster
    tests/lab/kubernetes down           ends everything, whatever state it is in

The cluster has one node, this machine. All processes are in namespaces of their own for
processes, mounts and network: the end of their first process ends them all, and nothing
of them is left on the machine. Pods see this machine's `/usr` and Python environment
instead of an image, unless they name one that was loaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import programs
import requirements
import sandbox
from containers import archive, containerd
from failures import ClusterError


def main() -> int:
    """Runs a command; returns the exit code: 2 if this machine lacks something."""
    parser = argparse.ArgumentParser(
        prog="tests/lab/kubernetes", description=__doc__.partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is missing")
    build.add_argument(
        "--limit", type=float, metavar="SECONDS", help="end with exit code 2 after them"
    )
    commands.add_parser("up", help="build what is missing, start everything")
    commands.add_parser("down", help="end everything")
    loading = commands.add_parser("load", help="make an image known to the cluster")
    loading.add_argument(
        "archive", type=Path, help="from `buildah push IMAGE docker-archive:FILE`"
    )
    run = commands.add_parser("run", help="run a command in the cluster's network")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    arguments = parser.parse_args()
    try:
        if arguments.command == "up":
            return up()
        if arguments.command == "down":
            sandbox.stop()
            return 0
        if arguments.command == "load":
            return load(arguments.archive)
        if arguments.command == "build":
            check_requirements()
            programs.build(arguments.limit)
            return 0
        sandbox.run(arguments.words)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.exit_code


def check_requirements() -> None:
    """Rejects a machine that lacks something."""
    requirements.check(builds=not programs.folder().is_dir())


def load(file: Path) -> int:
    """Makes the images of an archive known to the cluster; prints their names."""
    names = archive.names(file)
    containerd.load(sandbox.containers(), file, names)
    for name in names:
        print(f"{name}: loaded")
    return 0


def up() -> int:
    """Starts the cluster, unless it runs; prints how to reach it."""
    check_requirements()
    sandbox.check()  # before the build, which takes half an hour
    built = programs.build()
    if not sandbox.is_running():
        sandbox.start(built)
    print(
        f"The cluster is ready, with Kubeflow in the namespace `kubeflow`.\n"
        f"  API server  {sandbox.API_SERVER} (KUBECONFIG={sandbox.kubeconfig()})\n"
        f"  KFP         {sandbox.PIPELINES}\n"
        f"  S3          {sandbox.OBJECT_STORE}\n"
        f"  logs        {sandbox.folder()}/logs\n"
        "The addresses exist only in the cluster's network. A command runs there by:\n"
        f"  {sys.executable} tests/lab/kubernetes run COMMAND…\n"
        "End it with: make cluster-down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A podman that answers Docker's requests on a socket, with an image of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import docker
import server

IMAGE = "localhost/strategos-busybox:1"
_PACKAGES = "podman crun busybox-static"
# Limits that any root may set; without control groups, which crun rejects where both
# versions are mounted.
_CONF = """
[containers]
default_ulimits = ["nofile=1000:1000", "nproc=4000:4000"]
cgroups = "disabled"
[engine]
cgroup_manager = "cgroupfs"
"""
_SERVE = """
umount /sys/fs/cgroup/unified 2>/dev/null
exec "$0" "$@"
"""


class Podman:
    """Its address is that of `DOCKER_HOST`; images and containers are in its folder."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="podman-"))  # a short path
        self.address = f"unix://{self._folder}/socket"
        self.client = docker.DockerClient(self.address, version="1.41")
        self._process: subprocess.Popen | None = None

    def up(self) -> None:
        """Imports the image, and starts the service."""
        self._podman, busybox, _ = (
            server.program(name, _PACKAGES) for name in ("podman", "busybox", "crun")
        )
        server.require_root("a podman for tests")
        (self._folder / "containers.conf").write_text(_CONF)
        self._import(busybox)
        self._process = self._start("system", "service", "--time=0", self.address)
        server.wait_for(f"{self._folder}/socket", self._process)
        try:
            self.client.containers.run(IMAGE, "true", remove=True)
        except docker.errors.DockerException as error:
            raise server.MissingError(
                f"podman runs no container here: {error}"
            ) from None

    def down(self) -> None:
        """Removes all containers, and ends the service."""
        if self._process is not None and self._process.poll() is None:
            for each in self.containers():
                each.remove(force=True)
        self.client.close()
        server.end(self._process)
        shutil.rmtree(self._folder)

    def containers(self) -> list[docker.models.containers.Container]:
        """All containers, whether they run or not."""
        return self.client.containers.list(all=True)

    def _import(self, busybox: str) -> None:
        """Makes an image of a static busybox, whose programs are links to it."""
        file = self._folder / "image.tar"
        names = subprocess.check_output([busybox, "--list"], text=True).split()
        with tarfile.open(file, "w") as tar:
            tar.add(busybox, "bin/busybox")
            for name in set(names) - {"busybox"}:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        assert self._start("import", str(file), IMAGE).wait() == 0

    def _start(self, *arguments: str) -> subprocess.Popen:
        folder = self._folder
        store = (f"--root={folder}/store", f"--runroot={folder}/state")
        own = (self._podman, *store, "--storage-driver=vfs", *arguments)
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _SERVE, *own],
            env={**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

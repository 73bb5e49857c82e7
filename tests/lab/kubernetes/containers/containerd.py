"""containerd: starts it, imports images into it.

The image `IMAGE` holds no files: its containers see this machine's `/usr`, the Python
environment that runs this script, and the checkout, read-only and at the same paths. So
a change of the code needs no new image. Containers of other images see only their own
files.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from failures import ClusterError
from requirements import CHECKOUT, PLUGINS
from servers import Servers

from containers import archive

IMAGE = "registry.example.com/strategos:1"
"""The image of the cluster's own pods, which the overlays name, too."""

_PAUSE = "strategos.test/pause:1"
_PROGRAMS = "/opt/strategos"
_SECONDS = 180


def start(servers: Servers, folder: Path, programs: Path) -> None:
    """Starts containerd, and imports the cluster's own images.

    Args:
      servers: Keeps the process.
      folder: For its state; with the networks' settings in `network/`.
      programs: The folder of the programs.

    Raises:
      ClusterError: It did not start, or rejects an image.
    """
    snapshotter = _snapshotter(folder)
    (folder / "snapshotter").write_text(snapshotter)
    machine = _machine(programs)
    (folder / "base.json").write_text(json.dumps(_base(machine)))
    _write_runtime(folder, machine)
    (folder / "config.toml").write_text(_settings(folder, snapshotter))
    servers.start("containerd", ["containerd", "-c", folder / "config.toml"])
    ping = [*_control(folder), "version"]
    servers.wait("containerd", lambda: not _call(ping).returncode, _SECONDS)
    path = f"{_PROGRAMS}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    # The first container of a pod sees nothing of this machine.
    for name, program in ((IMAGE, None), (_PAUSE, programs / "pause")):
        file = folder / "image.tar"
        archive.write(file, name, program, path)
        _load(folder, file, name)


def load(folder: Path, file: Path, names: list[str]) -> None:
    """Imports the images of an archive.

    Args:
      folder: That of `start`, in a cluster that runs.
      file: The archive.
      names: What `archive.names` returned for it.

    Raises:
      ClusterError: A name is that of the cluster's own image, or containerd rejects the
        archive.
    """
    if IMAGE in names:
        raise ClusterError(
            f"{file}: {IMAGE} is the image of the cluster's own pods; give yours "
            "another name",
            exit_code=2,
        )
    _load(folder, file, ", ".join(names))


def _load(folder: Path, file: Path, name: str) -> None:
    snapshotter = (folder / "snapshotter").read_text()
    words = ["images", "import", f"--snapshotter={snapshotter}", file]
    done = _call([*_control(folder), *words])
    if not done.returncode:
        return
    if "no space left" in done.stderr:
        raise ClusterError(
            f"the disk of {folder} is full, so {name} was not loaded: it takes the "
            "size of the archive, and that of the unpacked files once more"
        )
    raise ClusterError(f"containerd rejects {name}: {done.stderr.strip()}")


def _control(folder: Path) -> list[str | Path]:
    return ["ctr", "-a", folder / "socket", "-n", "k8s.io"]


def _snapshotter(folder: Path) -> str:
    """The way to share an image's files between containers, or else to copy them."""
    layers = [folder / name for name in ("lower", "upper", "work", "merged")]
    for each in layers:
        each.mkdir()
    lower, upper, work, merged = layers
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    done = _call(["mount", "-t", "overlay", "overlay", "-o", options, merged])
    if done.returncode:
        return "native"
    _call(["umount", merged])
    return "overlayfs"


def _machine(programs: Path) -> list[dict]:
    """The mounts of this machine's files."""
    seen = {path: path for path in ("/usr", "/etc/ssl", sys.base_prefix, sys.prefix)}
    seen |= {str(CHECKOUT): str(CHECKOUT), "/workload": str(CHECKOUT)}
    seen[_PROGRAMS] = str(programs)
    options = ["rbind", "ro", "rprivate"]
    return [
        {"destination": at, "type": "bind", "source": source, "options": options}
        for at, source in seen.items()
    ]


def _base(machine: list[dict]) -> dict:
    """The runtime specification that each container starts from."""
    made = _call(["ctr", "oci", "spec"])
    if made.returncode:
        raise ClusterError(f"`ctr oci spec` failed: {made.stderr.strip()}")
    spec = json.loads(made.stdout)
    spec["mounts"] += machine
    return spec


def _write_runtime(folder: Path, machine: list[dict]) -> None:
    """Writes the program that containerd calls as `runc`.

    A specification is the same for all containers, so what only those of `IMAGE` see is
    taken from the others when they are created.
    """
    (folder / "machine.json").write_text(json.dumps(machine))
    script = Path(__file__).with_name("runtime.py")
    words = [sys.executable, "-IS", str(script), f"{folder}/machine.json", IMAGE]
    create = f'{shlex.join(words)} "$@"'
    file = folder / "runc"
    file.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" create "*) {create} || exit 1 ;; esac\n'
        'exec runc "$@"\n'
    )
    file.chmod(0o755)


def _settings(folder: Path, snapshotter: str) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/socket"
[{cri}]
  sandbox_image = "{_PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [{cri}.cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{folder}/network"
  [{cri}.containerd]
    snapshotter = "{snapshotter}"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/base.json"
      [{cri}.containerd.runtimes.runc.options]
        BinaryName = "{folder}/runc"
        SystemdCgroup = false
"""


def _call(words: list) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True)

"""Image archives: the files that image builders and `ctr images import` exchange."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from failures import ClusterError

_FOLDERS = ("dev", "etc", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var/run")
_LINKS = ("bin", "lib", "lib64", "sbin")  # into /usr, as on this machine
_FILES = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nstrategos:x:1000:1000::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nstrategos:x:1000:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


_DOCKER, _OCI = "manifest.json", "index.json"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_WRITTEN_BY = "buildah push IMAGE docker-archive:FILE"


def names(file: Path) -> list[str]:
    """The names of the images in an archive, with registry and tag.

    Args:
      file: An archive of Docker or OCI, as buildah, podman and docker write it; not
        compressed, but its layers may be.

    Raises:
      ClusterError: It is no such archive, or an image has no name.
    """
    try:
        with tarfile.open(file, "r:") as tar:
            found = _names(tar)
    except OSError as error:
        raise ClusterError(f"{file}: {error.strerror}", exit_code=2) from None
    except (tarfile.TarError, EOFError, LookupError, ValueError, TypeError):
        raise ClusterError(
            f"{file} is not an uncompressed image archive; `{_WRITTEN_BY}` writes one",
            exit_code=2,
        ) from None
    incomplete = [name or "none" for name in found if not name or "/" not in name]
    if incomplete or not found:
        raise ClusterError(
            f"{file}: an image needs a name with registry and tag, for pods to find "
            f"it; received {', '.join(incomplete) or 'no image'}. `{_WRITTEN_BY}` "
            "keeps the name of IMAGE",
            exit_code=2,
        )
    return found


def _names(tar: tarfile.TarFile) -> list[str | None]:
    """One name or more for each image, in the order of precedence of containerd."""
    if _OCI in tar.getnames():
        notes = [each.get("annotations", {}) for each in _json(tar, _OCI)["manifests"]]
        return [next(filter(None, map(each.get, _NAMES)), None) for each in notes]
    tags = [each["RepoTags"] or [None] for each in _json(tar, _DOCKER)]
    return [name for each in tags for name in each]


def _json(tar: tarfile.TarFile, name: str) -> Any:
    return json.loads(tar.extractfile(name).read())


def write(archive: Path, name: str, program: Path | None, path: str) -> None:
    """Writes an image that `ctr images import` reads.

    Args:
      archive: The file; replaced.
      name: Of the image, with its tag.
      program: A static program that the image holds and its containers run.
      path: The variable PATH of its containers.
    """
    layer = _layer(program)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": [f"/{program.name}"] if program else None,
            "Env": [f"PATH={path}", "HOME=/tmp"],
            "WorkingDir": "/workload",
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
        },
        "history": [{"created_by": "strategos"}],
    }
    settings = json.dumps(config).encode()
    file = f"{hashlib.sha256(settings).hexdigest()}.json"
    manifest = [{"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {file: settings, "layer.tar": layer}
    with tarfile.open(archive, "w") as tar:
        for part, content in {
            **parts,
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            _add(tar, part, content)


def _layer(program: Path | None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            if name == "tmp":
                folder.mode = 0o1777
            tar.addfile(folder)
        for name in _LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name, text in _FILES.items():
            _add(tar, name, text.encode())
        if program:
            _add(tar, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    tar.addfile(file, io.BytesIO(content))

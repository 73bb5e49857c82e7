"""Container images, made without any engine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

_FOLDERS = ("dev", "etc", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var/run")
_LINKS = ("bin", "lib", "lib64", "sbin")  # into /usr, as on this machine
_FILES = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nstrategos:x:1000:1000::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nstrategos:x:1000:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


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

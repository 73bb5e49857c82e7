"""A registry of images that wants credentials (Docker's)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import server

_SETTINGS = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "{address}"}}
auth: {{htpasswd: {{realm: here, path: {folder}/users}}}}
"""


class ImageRegistry:
    """An empty registry, for tools that push.

    Attributes:
      user: Name of its user.
      password: Password of its user.
    """

    user = "docker"

    def __init__(self, folder: Path, port: int):
        self.address, self.password = f"127.0.0.1:{port}", ""
        self._folder = folder
        self._process: subprocess.Popen | None = None

    def up(self) -> None:
        """Starts it."""
        for name in ("docker-registry", "buildah"):
            server.program(name, name)
        server.require_root("buildah")
        settings = self._folder / "registry.yml"
        text = _SETTINGS.format(folder=self._folder, address=self.address)
        settings.write_text(text)
        self._process = subprocess.Popen(
            ["docker-registry", "serve", settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self._process.stderr:  # it makes a user, and names it there
            self.password = self.password or "".join(
                re.findall(r"password=(\S+)", line)
            )
            if "listening on" in line:
                return

    def down(self) -> None:
        """Ends it."""
        if self._process:
            self._process.kill()
            self._process.communicate()

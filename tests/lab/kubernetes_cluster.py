"""A real Kubernetes with Kubeflow on this machine, by the scripts of `kubernetes/`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import server

SCRIPTS = Path(__file__).with_name("kubernetes")


class Kubernetes:
    """A cluster in namespaces of its own; its address is its kubeconfig.

    Args:
      logs: Folder that gets the logs at the end.
      state: Folder of its state; by default a new one, which is removed at the end.

    Attributes:
      environment: The environment of its commands.
      folder: The folder of its state.
      volume: The volume of the claim `serving`: a folder at the same path in the
        cluster and on this machine.
    """

    def __init__(self, logs: Path | None = None, state: Path | None = None):
        self._logs, self._is_own = logs, state is None
        self._state = state or Path(tempfile.mkdtemp(prefix="cluster-"))
        self.environment = {**os.environ, "XDG_STATE_HOME": str(self._state)}
        self.folder = self._state / "strategos" / "cluster"
        self.volume = self.folder / "volumes" / "serving"
        self.address = str(self.folder / "kubeconfig")

    def up(self):
        """Starts it, if `make test-cluster` has built its programs."""
        self.require_built()
        done = self.call("up")
        assert done.returncode == 0, done.stdout + done.stderr + self.log_ends()

    def require_built(self):
        """Rejects a machine that lacks its programs, or something they need."""
        done = self.call("build", "--limit", "1")
        if done.returncode == 2:
            raise server.MissingError(done.stderr.strip())

    def down(self):
        """Ends it, whatever state it is in."""
        logs = self.folder / "logs"
        if self._logs and logs.exists():
            shutil.copytree(logs, self._logs, symlinks=True, dirs_exist_ok=True)
        self.call("down")
        if self._is_own:
            shutil.rmtree(self._state, ignore_errors=True)

    def call(self, *words):
        """Runs `kubernetes WORDS`."""
        return subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True
        )

    def command(self, *words):
        """The command `kubernetes WORDS`."""
        return [sys.executable, str(SCRIPTS), *map(str, words)]

    def start(self, code_or_file, *words, **streams):
        """Starts Python in the cluster's network, with its KUBECONFIG."""
        is_file = isinstance(code_or_file, Path)
        program = [code_or_file] if is_file else ["-c", code_or_file]
        python = [sys.executable, "-W", "ignore", *program, *words]
        return subprocess.Popen(
            self.command("run", *python), env=self.environment, **streams
        )

    def log_ends(self):
        """The last lines of the log of each server and each container."""
        logs = sorted((self.folder / "logs").rglob("*.log"))
        lines = ((log, log.read_text(errors="replace").splitlines()) for log in logs)
        return "\n".join(f"{log}:\n" + "\n".join(end[-12:]) for log, end in lines)

    def python(self, code_or_file, *words):
        """Runs Python in the cluster's network; what it prints, parsed as JSON."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = self.start(code_or_file, *words, **pipes)
        said, problems = started.communicate()
        assert started.returncode == 0, said + problems
        return json.loads(said)

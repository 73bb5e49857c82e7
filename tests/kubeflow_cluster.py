"""A real Kubernetes with Kubeflow, for tests: `kubeflow/cluster`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CLUSTER = Path(__file__).parents[1] / "kubeflow" / "cluster"


class Cluster:
    """One that is not started, in namespaces of its own.

    Attributes:
      environment: The environment of its commands.
      folder: The folder of its state.
      volume: The volume of the claim `serving`: a folder at the same path in the
        cluster and on this machine.
    """

    def __init__(self, state: Path):
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.folder = state / "strategos" / "cluster"
        self.volume = self.folder / "volumes" / "serving"

    def call(self, *words):
        """Runs `kubeflow/cluster WORDS`."""
        return subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True
        )

    def command(self, *words):
        """The command `kubeflow/cluster WORDS`."""
        return [sys.executable, str(CLUSTER), *map(str, words)]

    def start(self, code_or_file, *words, **streams):
        """Starts Python in the cluster's network, with its KUBECONFIG."""
        is_file = isinstance(code_or_file, Path)
        program = [code_or_file] if is_file else ["-c", code_or_file]
        python = [sys.executable, "-W", "ignore", *program, *words]
        return subprocess.Popen(
            self.command("run", *python), env=self.environment, **streams
        )

    def skip_unless_built(self):
        """Skips the test by the name of what is missing."""
        done = self.call("build", "--limit", "1")  # `make test-cluster` has built
        if done.returncode == 2:
            pytest.skip(done.stderr.strip())

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

"""Clocks and a run on two machines at once: network namespaces and one database.

Takes minutes: only with `STRATEGOS_KILLS=all`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        os.environ.get("STRATEGOS_KILLS") != "all",
        reason="takes minutes; run with STRATEGOS_KILLS=all",
    ),
]

DATABASE = {"left": "10.77.84.1", "right": "10.77.85.1"}  # as each machine sees it
BUSY = re.compile(r"run (\S+) has been running since")


class Machine:
    """A namespace with a workspace: a root, and a lock, of its own."""

    def __init__(self, workspace, namespace, *settings):
        self.workspace, self._namespace = workspace, namespace
        self._sets = [word for each in settings for word in ("--set", each)]
        self._started = []

    def start(self, *words):
        """Starts a command of the workspace; its process."""
        inside = ["ip", "netns", "exec", self._namespace]
        log = self.workspace.folder / f"log-{len(self._started)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*inside, *self.workspace.warm.cli(), *words, *self._sets],
                stdout=file,
                stderr=file,
                env=self.workspace.environment() | {"NETWORK": self._namespace},
            )
        self._started.append((process, log))

    def start_clock(self):
        yaml = str(self.workspace.yaml)
        self.start("schedule", "start", yaml, "--every", "5s")

    def said(self):
        """What each command has printed so far."""
        return [log.read_text() for _, log in self._started]

    def events(self, run):
        """The events of a run; "" if it is none of this machine."""
        runs = self.workspace.folder / "runs" / ".strategos" / "runs"
        file = runs / run / "events.jsonl"
        return file.read_text() if file.exists() else ""

    def lose(self, end):
        """Kills or freezes all processes of the machine, or cuts it off."""
        if end == "cut off":
            self._plug("down")
        else:
            self.send(signal.SIGKILL if end == "killed" else signal.SIGSTOP)

    def come_back(self, end):
        if end == "cut off":
            self._plug("up")
        elif end == "frozen":
            self.send(signal.SIGCONT)
        else:
            self.start_clock()

    def send(self, sig):
        listed = self._ip("netns", "pids", self._namespace)
        for pid in map(int, listed.split()):
            os.kill(pid, sig)

    def end(self):
        self.send(signal.SIGKILL)
        for process, _ in self._started:
            process.kill()
            process.wait()

    def _plug(self, state):
        inside = ("-n", self._namespace)
        device = re.search(r"s\d+n\d[ab]", self._ip(*inside, "-o", "link"))[0]
        self._ip(*inside, "link", "set", device, state)

    @staticmethod
    def _ip(*words):
        return subprocess.check_output(["ip", *words], text=True)


@pytest.fixture
def machines(
    make_namespaces, mariadb_server, metadata_password, make_small, tmp_path, end
):
    """Two machines that push to one folder; a third one has the database."""
    made = []
    namespaces = make_namespaces(
        *({name: f"{ip[:-1]}2/24", "db": f"{ip}/24"} for name, ip in DATABASE.items())
    )
    mariadb_server.down()
    mariadb_server.listen(namespaces["db"])
    for name, ip in DATABASE.items():
        url = mariadb_server.address.replace("127.0.0.1", ip)
        settings = (
            f"name={end.replace(' ', '-')}",  # one database serves all cases
            f"run.metadata={url}",
            f"pusher.to={tmp_path}/serving",
            "schedule.retry_after=1s",
        )
        workspace = make_small(Path(tmp_path, name))
        made.append(Machine(workspace, namespaces[name], *settings))
    yield made
    for machine in made:
        machine.end()


@pytest.mark.parametrize("end", ["killed", "frozen", "cut off"])
def test_one_of_all_works_and_after_its_loss_the_other_machine(end, machines, tmp_path):
    left, right = machines
    wait_for, serving = left.workspace.wait_for, tmp_path / "serving"

    def busy():
        told = [said for each in machines for said in each.said()]
        return [found[1] for said in told if (found := BUSY.search(said))]

    with left.workspace.held("Trainer"), right.workspace.held("Trainer"):
        left.start_clock()
        right.start_clock()
        right.start("run", str(right.workspace.yaml))
        wait_for(lambda: len(busy()) == 2, seconds=300)
        (run,) = set(busy())
        lost, heir = machines if left.events(run) else machines[::-1]
        wait_for(lambda: "epoch 1/" in lost.events(run), seconds=300)
        lost.lose(end)
    wait_for(lambda: any(serving.glob("[0-9]*")), seconds=500)
    assert any("has not renewed its lease" in said for said in heir.said())
    wait_for(lambda: any("Not due: model " in s for s in heir.said()), seconds=300)
    (version,) = serving.glob("[0-9]*")
    lost.come_back(end)
    if end != "killed":
        wait_for(lambda: any("has taken over" in s for s in lost.said()), seconds=200)
    wait_for(lambda: any("Not due: model " in s for s in lost.said()), seconds=300)
    assert list(serving.glob("[0-9]*")) == [version]

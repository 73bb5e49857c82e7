"""The clock of `strategos schedule start`, with a command that takes long."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

CLOCK = """
import sys, types
from strategos.pipeline import schedule_command
from strategos.pipeline.run.interruption import Interruption

root = types.SimpleNamespace(root=sys.argv[1])
config = types.SimpleNamespace(run=root, name="p")
with Interruption():
    schedule_command._Clock(config, [sys.executable, "-c", sys.argv[2]], 600).run()
print("the clock has ended", flush=True)
"""
RUN = """
import signal, sys, time

def save(*_):
    print("saved", flush=True)
    sys.exit(130)

signal.signal(signal.SIGTERM, save)
print("run", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_clock_ends_the_current_run_and_waits_for_it(tmp_path, sig):
    command = [sys.executable, "-c", CLOCK, str(tmp_path), RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clock:
        assert clock.stdout.readline().endswith("  run\n")
        clock.send_signal(sig)
        said = ["ending the current run", "saved", "the clock has ended"]
        assert clock.stdout.read().splitlines() == said
    assert clock.returncode == 0

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

DIE = "import sys; from strategos.components.processes import die_with_parent; "


@pytest.mark.parametrize("there", [True, False])
def test_a_process_whose_parent_died_before_it_could_ask_ends_at_once(there):
    """Its parent is by then whoever adopts orphans, and lives."""
    parent = os.getpid() if there else os.getpid() + 1
    code = f"{DIE} die_with_parent(int(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(parent)])
    assert done.returncode == (0 if there else -signal.SIGKILL)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("strategos.components.trainer.worker", ["PARENT", "request", "answer"]),
        ("strategos.components.trainer.tpu", ["PARENT", "{}"]),
        ("strategos.pipeline.runners.executor_process", ["0", "events", "PARENT"]),
        ("strategos.pipeline.runners.beam_process", ["PARENT"]),
    ],
)
def test_no_program_of_ours_works_for_a_parent_that_is_gone(module, arguments):
    gone = str(os.getpid() + 1)
    given = [gone if each == "PARENT" else each for each in arguments]
    done = subprocess.run(
        [sys.executable, "-m", module, *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=5,  # before it imports anything that takes longer
    )
    assert done.returncode == -signal.SIGKILL

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategos.components import processes

DIE = "import sys; from strategos.components.processes import die_with_parent; "


@pytest.mark.parametrize("there", [True, False])
def test_a_process_whose_parent_died_before_it_could_ask_ends_at_once(there):
    """Its parent is then the process that adopts orphans, and is alive."""
    parent = os.getpid() if there else os.getpid() + 1
    code = f"{DIE} die_with_parent(int(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(parent)])
    assert done.returncode == (0 if there else -signal.SIGKILL)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("strategos.components.trainer.run.worker", ["PARENT", "request", "answer"]),
        ("strategos.components.trainer.distribution.tpu", ["PARENT", "{}"]),
        ("strategos.pipeline.runners.executor_process", ["PARENT", "0", "events"]),
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
        timeout=5,  # before slow imports
    )
    assert done.returncode == -signal.SIGKILL


NAMED = """
import ctypes, pathlib, sys, time
ctypes.CDLL(None).prctl(15, bytes([0xE9, 0xFF]), 0, 0, 0)  # PR_SET_NAME
pathlib.Path(sys.argv[1]).write_text("named")
time.sleep(60)
"""


def test_a_process_whose_name_is_not_utf8_is_a_child_like_others(tmp_path):
    named = tmp_path / "named"
    with subprocess.Popen([sys.executable, "-c", NAMED, str(named)]) as process:
        _wait_for(named)
        assert process.pid in processes.children()
        process.kill()


def test_descendants_of_every_generation_end(tmp_path):
    last, script = tmp_path / "last", tmp_path / "generation"
    script.write_text(f"""
        [ $1 = 0 ] && echo $$ > {last} && exec sleep 60
        sh {script} $(($1 - 1)) & wait
    """)
    others = processes.children()
    processes.adopt_orphans()
    try:
        subprocess.Popen(["sh", str(script), "3"])
        pid = int(_wait_for(last))
        processes.end_children(others, time.monotonic() + 10)
    finally:
        processes.adopt_orphans(False)
    assert not Path(f"/proc/{pid}").exists()
    assert processes.children() == others


def _wait_for(path: Path) -> str:
    until = time.monotonic() + 10
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return path.read_text()


_SCATTERED = """
from pathlib import Path
from strategos.components import processes

def taken():
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines()
               if x.startswith("RssAnon")]
    return int(line.split()[1]) // 1024

pieces = [bytes(2000) for _ in range(100_000)]
pieces = pieces[::1000]  # those that are kept lie between freed ones
before = taken()
processes.return_freed_memory()
print(before, taken())
"""


def test_freed_memory_between_pieces_in_use_returns_to_the_system():
    run = [sys.executable, "-c", _SCATTERED]
    output = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    before, after = map(int, output.split())
    assert before > 190
    assert after < 60

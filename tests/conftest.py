from __future__ import annotations

import runpy
import signal
from pathlib import Path

import pytest

from strategos.components.user_code import modules

# A job that a shell starts in the background ignores Ctrl-C, and so would all processes
# that these tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def no_user_code(tmp_path_factory):
    """What a file imports of a workload, another one does not find."""
    yield
    modules.activate(str(tmp_path_factory.mktemp("no-workload")))


@pytest.fixture(scope="session")
def warm_parent(tmp_path_factory):
    """Makes a `Parent` of warm.py: `warm_parent(modules, imports, env)`."""
    warm, made = runpy.run_path(str(Path(__file__).with_name("warm.py"))), []

    def make(modules, imports, env):
        folder = tmp_path_factory.mktemp("warm")
        made.append(warm["Parent"](folder, modules, imports, env))
        return made[-1]

    yield make
    for parent in made:
        parent.end()

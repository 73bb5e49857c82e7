from __future__ import annotations

import signal

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

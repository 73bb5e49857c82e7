"""Workers on hosts that lack what they need: a cluster that sees other files."""

from __future__ import annotations

import json
import operator
import os
import shlex
import subprocess
import sys

import pytest

from strategos.components.errors import UserError
from strategos.components.shards import beam_runners
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.user_code import modules

pytestmark = pytest.mark.engine

_STARTER = """
import json, pathlib, sys, time
from strategos.components.shards.flink.connection import connected

with connected(None, 1, 1, pathlib.Path(sys.argv[1])) as connection:
    print(json.dumps([connection.job_endpoint, connection.master]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """`locked`, which workers cannot write to, and `hidden`, which they do not see."""
    folder = tmp_path_factory.mktemp("hosts")
    for name in ("locked", "hidden"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="module")
def engine(installed, folders):
    """A cluster in a mount namespace."""
    locked, hidden = (shlex.quote(str(folders / name)) for name in ("locked", "hidden"))
    python = shlex.join([sys.executable, "-c", _STARTER, str(folders / "logs")])
    script = (
        f"mount --bind {locked} {locked} && mount -o remount,ro,bind {locked} && "
        f"mount -t tmpfs none {hidden} && exec {python}"
    )
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("needs mount namespaces")
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        endpoint, master = json.loads(process.stdout.readline())
        yield Engine("portable", 1, endpoint, master=master)
        process.stdin.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("locked", "run.root: a worker on .* cannot write to .*/locked"),
        ("hidden", "run.root: this process on .* does not see .* write to .*/hidden"),
    ],
)
def test_root_that_workers_cannot_use(engine, folders, name, message):
    with pytest.raises(UserError, match=message):
        fold(engine, range(3), operator.neg, operator.add, str(folders / name))


def test_code_that_workers_cannot_import(engine, folders, tmp_path, monkeypatch):
    (folders / "hidden" / "only_here.py").write_text("def work(shard): return shard")
    monkeypatch.setattr(sys, "path", [str(folders / "hidden"), *sys.path])
    modules.activate(str(folders / "hidden"))
    import only_here

    with pytest.raises(UserError, match="workers of .* cannot import only_here"):
        fold(engine, range(3), only_here.work, operator.add, str(tmp_path))


def test_command_that_hosts_do_not_have(engine, tmp_path, monkeypatch):
    command = lambda: "/no/such/strategos-worker"  # noqa: E731
    monkeypatch.setattr(beam_runners, "_worker_command", command)
    with pytest.raises(UserError, match="cannot start .*/no/such/strategos-worker"):
        fold(engine, range(3), operator.neg, operator.add, str(tmp_path))

"""A gang on one machine: other hosts cannot reach its servers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback

import pytest

from strategos.components import events
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import gang, loopback, watchdog

LIMITS = watchdog.Limits(60, 60, max_restarts=0, save=5, farewell=0.5, echo=0.5)
TASKS = (Task("chief"), Task("worker"))
HERE, THERE = "10.77.84.1", "10.77.84.2"
NOBODY = 65534

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
except ConnectionRefusedError:
    sys.exit(7)
"""

# The user's module: reports the gang's addresses, then waits for the test.
MODEL = """
import json, os, time
from pathlib import Path
import tensorflow as tf
from one_unit import build_model as build

def build_model(context):
    marks = Path(context.hyperparameters["marks"])
    if "TF_CONFIG" in os.environ:  # not where the export is rehearsed
        aside = marks / f"{os.getpid()}"
        aside.write_text(json.dumps(json.loads(os.environ["TF_CONFIG"])["cluster"]))
        aside.rename(marks / "cluster")
    while not (marks / "seen").exists():
        time.sleep(0.05)
    return build(context)
"""


def connects(host, port, *prefix):
    """Whether a new process, run by the command `prefix`, can connect."""
    command = [*prefix, sys.executable, "-c", CONNECT, host, str(port)]
    code = subprocess.run(command).returncode
    assert code in (0, 7)
    return code == 0


def wait_for(path, seconds=120):
    until = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text()


@pytest.fixture
def other_host():
    """The command that runs another one on a host with a cable to this machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the command `ip`")
    name, ours, theirs = (f"{each}{os.getpid()}" for each in ("strategos-", "a", "b"))
    commands = (
        f"netns add {name}",
        f"link add {ours} type veth peer name {theirs}",
        f"link set {theirs} netns {name}",
        f"addr add {HERE}/24 dev {ours}",
        f"link set {ours} up",
        f"-n {name} addr add {THERE}/24 dev {theirs}",
        f"-n {name} link set {theirs} up",
    )
    try:
        for command in commands:
            if subprocess.run(["ip", *command.split()]).returncode:
                pytest.skip(f"not allowed here: ip {command}")
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "parameter_server"])
def test_another_host_reaches_no_task_of_a_gang_on_one_machine(
    strategy, other_host, workload, make_spec, train_only, tmp_path
):
    workload.write_module("waiting", MODEL)
    (tmp_path / "marks").mkdir()
    spec = make_spec(
        module="waiting",
        distribution={"strategy": strategy, "workers": 2},
        hyperparameters={"marks": str(tmp_path / "marks")},
        epochs=1,
    )
    seen = {}

    def look():
        cluster = json.loads(wait_for(tmp_path / "marks" / "cluster"))
        for address in sum(cluster.values(), []):
            host, _, port = address.rpartition(":")
            until = time.monotonic() + 20
            while not connects(host, port) and time.monotonic() < until:
                time.sleep(0.2)  # not every task is as far as the chief
            seen[address] = (connects(host, port), connects(HERE, port, *other_host))
        (tmp_path / "marks" / "seen").touch()

    with socket.create_server((HERE, 0)) as open_to_all:
        assert connects(HERE, open_to_all.getsockname()[1], *other_host)
    looking = threading.Thread(target=look)
    looking.start()
    facts = train_only(spec)
    looking.join()
    assert len(seen) == (2 if strategy == "multi_worker_mirrored" else 4)
    assert set(seen.values()) == {(True, False)}, seen
    assert facts["restarts"] == 0


def listening(folder, address, family=socket.AF_INET):
    """Work of a task: a server on `address`, at the port that the cluster gives it."""

    def work(cluster, reporter, attempt):
        reporter.joined()
        mine = cluster.addresses[cluster.task.type][cluster.task.index]
        port = int(mine.rpartition(":")[2])
        with socket.create_server((address, port), family=family):
            (folder / cluster.task.name).write_text(str(port))
            wait_for(folder / "seen")
        return {"pid": os.getpid()}

    return work


def cluster():
    ports = []
    with contextlib.ExitStack() as held:
        for _ in TASKS:
            server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(server.getsockname()[1])
    addresses = zip(("chief", "worker"), ports, strict=True)
    return ClusterSpec({kind: (f"127.0.0.1:{port}",) for kind, port in addresses})


def own_address():
    """An address of this machine that is not on the loopback device."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        return probe.getsockname()[0]


def reached(folder, work, *hosts):
    """Addresses where the servers of a gang can be reached."""
    found = {}

    def look():
        for task in TASKS:
            port = int(wait_for(folder / task.name))
            for host in hosts:
                found[task.name, host] = connects(host, port)
        (folder / "seen").write_text("yes")

    looking = threading.Thread(target=look)
    looking.start()
    gang.run(TASKS, lambda _: cluster(), work, LIMITS)
    looking.join()
    return found


@pytest.mark.parametrize(
    ("address", "family", "open_to_all"),
    [
        ("0.0.0.0", socket.AF_INET, False),
        ("::", socket.AF_INET6, False),
        ("named", socket.AF_INET, True),
    ],
)
def test_a_server_on_all_interfaces_is_kept_to_loopback(
    address, family, open_to_all, tmp_path
):
    outside = own_address()
    address = outside if address == "named" else address  # the user's own choice
    found = reached(tmp_path, listening(tmp_path, address, family), outside)
    assert set(found.values()) == {open_to_all}


def in_fork(prepare, check):
    """Runs both in a fork of this process, which keeps its rights."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            check()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def drop_root():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # Set in every process of an ordinary user; a change of user clears it.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE


def test_no_privileges_are_needed(tmp_path, capfd):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o777)

    def work(cluster, reporter, attempt):
        reporter.joined()
        with socket.create_server(("0.0.0.0", 0)) as server:
            device = server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
            return {"device": device.rstrip(b"\0").decode()}

    def check():
        assert gang.run(TASKS, lambda _: cluster(), work, LIMITS)["device"] == "lo"

    in_fork(drop_root, check)
    assert "warning" not in capfd.readouterr().err


def forbid(*numbers):
    """As in a container without SYS_PTRACE: these system calls fail with EPERM."""
    architecture = loopback._NUMBERS[platform.machine()][0]
    steps = [(0x20, 0, 0, 4), (0x15, 0, len(numbers) + 1, architecture)]
    steps.append((0x20, 0, 0, 0))
    for left, number in enumerate(reversed(numbers)):
        steps.append((0x15, len(numbers) - left, 0, number))
    steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(kept))
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0


@pytest.mark.parametrize("forbidden", ["pidfd_getfd", "seccomp"])
def test_where_the_system_allows_none_one_warning_names_ports_and_remedy(
    forbidden, tmp_path, capfd
):
    _, seccomp, _ = loopback._NUMBERS[platform.machine()]
    number = {"pidfd_getfd": 438, "seccomp": seccomp}[forbidden]
    log, place = tmp_path / "events", cluster()

    def check():
        events.open_sink(str(log), node="Trainer")
        work = listening(tmp_path, "0.0.0.0")
        (tmp_path / "seen").write_text("yes")
        gang.run(TASKS, lambda _: place, work, LIMITS)

    in_fork(lambda: forbid(number), check)
    found = [json.loads(line) for line in log.read_text().splitlines()]
    (warning,) = [each["message"] for each in found if each["event"] == "warning"]
    for kind in ("chief", "worker"):
        port = place.addresses[kind][0].rpartition(":")[2]
        assert f"{kind}-0 on port {port}" in warning
    assert f"{forbidden}: Operation not permitted" in warning
    assert "firewall" in warning
    assert capfd.readouterr().err.count("other hosts can connect") == 1


def test_what_a_task_starts_is_guarded_too_and_other_calls_go_on(tmp_path):
    code = (
        "import socket; s = socket.create_server(('0.0.0.0', 0));"
        "print(s.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16))"
    )

    def work(cluster, reporter, attempt):
        reporter.joined()
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(str(tmp_path / cluster.task.name))
            local.listen()
        with socket.socket() as unbound, contextlib.suppress(OSError):
            unbound.listen()
        out = subprocess.run([sys.executable, "-c", code], capture_output=True)
        return {"device": out.stdout.decode().strip()}

    answer = gang.run(TASKS, lambda _: cluster(), work, LIMITS)
    assert answer["device"] == r"b'lo\x00'"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("127.0.0.1", "127.0.0.2"), True),
        (("localhost", "[::1]"), True),
        (("127.0.0.1", "10.0.0.2"), False),
        (("mw-0.default.svc", "mw-1.default.svc"), False),
        ((), False),
    ],
)
def test_a_cluster_is_local_if_all_its_addresses_are(hosts, expected):
    spec = ClusterSpec({"worker": tuple(f"{host}:2222" for host in hosts)})
    assert loopback.is_local(spec) is expected

"""A folder of a gang and its copy, each as on a host of its own."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.hosts import mirror, rendezvous
from strategos.components.trainer.hosts.rendezvous import Rendezvous


@pytest.fixture
def cluster(free_ports):
    (port,) = free_ports(1)
    addresses = {"chief": (f"127.0.0.1:{port}",), "worker": ("10.0.0.1:1",)}
    return ClusterSpec(addresses, Task("worker"))


@pytest.fixture
def chief(cluster, tmp_path):
    """The chief's side, with a run; and its server."""
    folder = Rendezvous(tmp_path / "chief")
    run = folder.open_run({"spec": 1})
    server = mirror.serve(folder.folder, cluster, "secret")
    yield run
    server.shutdown()
    server.server_close()


@pytest.fixture
def copy(cluster, tmp_path):
    return mirror.Copy(tmp_path / "copy", cluster, "secret")


def ask(cluster, body, token="secret"):
    connection = http.client.HTTPConnection("127.0.0.1", mirror.port_of(cluster))
    connection.request("POST", "/", body, {"Authorization": token})
    return connection.getresponse().status


def test_each_side_sees_what_the_other_has_written(chief, copy, tmp_path):
    copy.exchange()
    here = Rendezvous(tmp_path / "copy")
    call = here.get(rendezvous.CALL)
    assert call == {"spec": 1, "id": chief.folder.name}
    mine = Rendezvous(here.folder / call["id"])
    mine.put("worker-0", {"state": "joined"})
    (mine.folder / "worker-0.beat").write_text("1")
    chief.put("chief-0", {"state": "ready"})
    chief.put(rendezvous.RUN, {"beat": 7})
    copy.exchange()
    assert chief.get("worker-0") == {"state": "joined"}
    assert (chief.folder / "worker-0.beat").read_text() == "1"
    assert mine.get("chief-0") == {"state": "ready"}
    assert mine.get(rendezvous.RUN) == {"beat": 7}
    mine.put("worker-0", {"state": "ready"})
    copy.exchange()
    copy.exchange()
    assert chief.get("worker-0") == mine.get("worker-0") == {"state": "ready"}
    assert {p.name for p in mine.folder.iterdir()} == {
        *("worker-0.json", "worker-0.beat", "chief-0.json", "run.json")
    }


def test_host_that_is_away_comes_back(chief, cluster, tmp_path):
    lonely = mirror.Copy(tmp_path / "copy", cluster, "other")
    with pytest.raises(ValueError, match="403"):
        lonely.exchange()
    assert not (tmp_path / "copy").exists()
    nobody = {"chief": ("127.0.0.1:1",), "worker": ("10.0.0.1:1",)}
    away = ClusterSpec(nobody, Task("worker"))
    with pytest.raises(OSError, match="refused"):
        mirror.Copy(tmp_path / "copy", away, "secret").exchange()


def test_name_of_the_chief_is_resolved_once(chief, cluster, tmp_path, monkeypatch):
    port = mirror.port_of(cluster) - 1
    named = {"chief": (f"localhost:{port}",), "worker": ("10.0.0.1:1",)}
    copy = mirror.Copy(tmp_path / "copy", ClusterSpec(named, Task("worker")), "secret")
    copy.exchange()
    resolve = socket.getaddrinfo

    def without_dns(host, *more, **how):
        if host == "localhost":
            raise socket.gaierror("no DNS")
        return resolve(host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", without_dns)
    copy.exchange()
    assert Rendezvous(tmp_path / "copy").get(rendezvous.CALL)


@pytest.mark.parametrize(
    "name", ["../x.json", "/tmp/x.json", "{run}/../../x.json", "call.json", "{run}/a"]
)
def test_only_reports_of_a_run_are_written(chief, cluster, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    name = name.format(run=chief.folder.name)
    body = json.dumps({"changed": {name: "stolen"}, "known": {}})
    assert ask(cluster, body) == 200
    assert sorted(tmp_path.rglob("*")) == before
    assert "stolen" not in (tmp_path / "chief" / "call.json").read_text()
    assert ask(cluster, body, token="other") == 403
    assert ask(cluster, "{}") == ask(cluster, "no JSON") == 400

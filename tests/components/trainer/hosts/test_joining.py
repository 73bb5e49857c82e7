"""Workers that may join a run, and the errors of those that may not."""

from __future__ import annotations

import dataclasses
import errno
import json
import socket

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts import worker as host_worker


def test_missing_workers_are_named(site):
    run = site.run(start_timeout=3.0)
    chief = site.worker("chief")
    code, out = site.ended(run)
    assert code == 1
    assert "worker-0 did not join within 3 s" in out and "chief-0 on" in out
    assert "did not join" in site.ended(chief)[1]


def test_a_run_that_no_worker_joins_fails_with_a_remedy(site):
    code, out = site.ended(site.run(start_timeout=0.5))
    assert code == 1 and "no worker joined within 0.5 s" in out
    assert "strategos worker PIPELINE_YAML" in out


@pytest.mark.long
def test_a_worker_with_other_code_is_rejected_by_task_name(site):
    site.code("other", "x = 2")
    run = site.run()
    worker = site.worker("worker", code="other")
    for process in (run, worker):
        code, out = site.ended(process)
        assert (
            code == 1 and "worker-0" in out and "its code differs from the run's" in out
        )


@pytest.mark.long
def test_data_missing_on_a_host_are_named(site):
    run = site.run()
    lonely = site.folder / "elsewhere" / "late" / "Trainer"
    lonely.mkdir(parents=True)
    lonely.joinpath("gang").symlink_to(site.trainer / "gang")
    site.trainer = lonely
    code, out = site.ended(site.worker("chief"))
    missing = site.folder / "elsewhere" / "late" / "data"
    assert code == 1 and f"{missing} does not exist here" in out
    assert site.ended(run)[0] == 1


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("model_dir", "{root}/../../home"),
        ("log_dir", "{home}"),
        ("checkpoint_dir", "{home}"),
        ("checkpoint_dir", "{root}/Trainer/../../../home"),
    ],
)
def test_a_call_cannot_have_a_worker_write_outside_of_the_root(
    key, place, make_spec, tmp_path
):
    """Otherwise anyone who can write the call could make a host remove any folder."""
    root, home = tmp_path / "root" / "late", tmp_path / "home"
    folders = ("model", "log", "checkpoint")
    paths = {f"{name}_dir": str(root / "Trainer" / name / "1") for name in folders}
    spec = dataclasses.replace(make_spec(), **paths)
    trainer = str(root / "Trainer")
    found = host_worker._spec({"spec": spec.to_json()}, trainer, "code")
    assert found.checkpoint_dir == spec.checkpoint_dir
    elsewhere = place.format(home=home, root=root)
    changed = dataclasses.replace(spec, **{key: elsewhere})
    with pytest.raises(UserError, match=r"which is not below .*late\."):
        host_worker._spec({"spec": changed.to_json()}, trainer, "code")


@pytest.mark.long
def test_of_two_workers_with_one_task_the_first_fails(site):
    run = site.run()
    first = site.worker("worker")
    site.awaited(lambda: site.state("worker") == "ready")
    second = site.worker("worker")
    code, out = site.ended(first)
    assert code == 1 and "has joined the run as worker-0 after this one" in out
    chief = site.worker("chief", 'return {"from": name}')
    assert [site.ended(process)[0] for process in (run, second, chief)] == [0, 0, 0]


@pytest.mark.long
def test_different_clusters_are_rejected(site):
    run = site.run()
    other = {**site.cluster, "chief": ["127.0.0.1:1"]}
    site.worker("chief")
    site.worker("worker", cluster=other)
    code, out = site.ended(run)
    assert code == 1 and "worker-0 on" in out and "names another cluster" in out


def test_a_port_in_use_is_named(site, monkeypatch):
    monkeypatch.setattr(host_worker, "_PORT_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster = {"chief": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]}
        place = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(place))
        with pytest.raises(UserError, match=f"chief-0 .* uses port {port}"):
            host_worker.join(str(site.trainer), "code", 1.0)


def test_a_port_that_the_system_denies_is_not_reported_as_in_use(site, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refused)
    place = {"cluster": {"worker": ["a:80"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    message = "worker-0 .* allows no server on port 80: Permission denied"
    with pytest.raises(UserError, match=message):
        host_worker.join(str(site.trainer), "code", 1.0)


def test_a_worker_without_a_run_fails(site, monkeypatch):
    place = {"cluster": site.cluster, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    with pytest.raises(UserError, match="no run has called for workers at .*gang"):
        host_worker.join(str(site.trainer), "code", 0.5)


@pytest.mark.parametrize(
    ("config", "message"),
    [(None, "TF_CONFIG is not set"), ("{chief", "TF_CONFIG is not JSON")],
)
def test_a_worker_without_a_task_fails(site, monkeypatch, config, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match=message):
        host_worker.join(str(site.trainer), "code", 0.5)


def test_a_remote_root_is_rejected():
    with pytest.raises(UserError, match="run.root, which is s3:// here"):
        rendezvous.folder_of("s3://bucket/root/late/Trainer/model/1")

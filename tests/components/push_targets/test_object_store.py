"""Pushes to an object store, on a server of its own."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest

from strategos.components.errors import BadInputError, UserError
from strategos.components.push_targets import reports, targets


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def serving(bucket, request):
    return f"{bucket}/{request.node.name}/serving"


@pytest.fixture
def store(bucket, bucket_client):
    """The names of the objects below a URL, from another client than the target's."""

    def names(url):
        name, _, prefix = url.partition("://")[2].partition("/")
        listed = bucket_client.list_objects_v2(Bucket=name, Prefix=f"{prefix}/")
        return [each["Key"].removeprefix(f"{prefix}/") for each in listed["Contents"]]

    return names


@pytest.fixture
def model(tmp_path):
    for name in ("saved_model.pb", "variables/variables.index", "assets/naïve words"):
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return str(tmp_path / "model")


def at(url, seconds):
    return targets.of(url, lambda: float(seconds))


def test_a_version_has_all_files_and_its_manifest(serving, store, model, tmp_path):
    target = at(serving, 7)
    assert (target.versions(), target.newest()) == ([], None)
    assert target.push(model, keep=3, manifest={"run_id": "é"}) == 7
    assert (target.versions(), target.newest()) == ([7], 7)
    assert target.manifest(7) == {"run_id": "é"}
    assert sorted(store(f"{serving}/7")) == [
        *("assets.extra/manifest.json", "assets/naïve words"),
        *("saved_model.pb", "variables/variables.index"),
    ]
    with targets.local(target.path(7)) as folder:
        read = Path(folder, "variables", "variables.index").read_text()
        assert read == "variables/variables.index"
        assert target.push(folder, keep=3) == 8  # a rollback: by the same clock
    assert target.manifest(8) == {"run_id": "é"} and target.newest() == 8
    here = targets.of(str(tmp_path / "here"))
    copied = here.push(target.path(7), keep=1)  # a model under a remote root
    assert here.manifest(copied) == {"run_id": "é"}


def test_newest_complete_versions_are_kept(
    serving, store, model, bucket, bucket_client
):
    key = f"{serving.removeprefix(f'{bucket}/')}/12/variables/half"
    for second in (10, 11):
        at(serving, second).push(model, keep=2)
    bucket_client.put_object(Bucket="bucket", Key=key, Body=b"of a killed push")
    target = at(serving, 13)
    assert (target.versions(), target.newest()) == ([10, 11, 12], 11)
    target.push(model, keep=2)
    assert target.versions() == [11, 12, 13]  # the next push removes 11 and 12
    at(serving, 5).push(model, keep=1)
    assert target.versions() == [14]
    assert {name.partition("/")[0] for name in store(serving)} - {""} == {"14"}


def test_a_report_stays_as_long_as_its_version(serving, store, model):
    for second in (10, 11, 12):
        target = at(serving, second)
        target.push(model, keep=2)
        reports.write(target, second, f"page of {second}")
    assert (target.versions(), target.newest()) == ([11, 12], 12)
    assert reports.listed(serving) == {
        number: f"{serving}/reports/{number}.html" for number in (11, 12)
    }
    assert set(store(f"{serving}/reports")) - {""} == {"11.html", "12.html"}
    copied = target.push(model, keep=3)
    assert reports.copy(target, 12, target, copied) == ""
    target.remove(12)
    assert not reports.exists(target, 12) and reports.exists(target, copied)


def test_a_push_that_fails_leaves_nothing(serving, store, model):
    at(serving, 3).push(model, keep=1)
    Path(model, "saved_model.pb").unlink()  # which is written last
    with pytest.raises(UserError, match="nothing can be written there: .*saved_model"):
        at(serving, 4).push(model, keep=1)
    assert {name.partition("/")[0] for name in store(serving)} - {""} == {"3"}


def test_a_bucket_that_is_missing_is_named_before_anything_runs(bucket, model):
    other = bucket.replace("bucket", "other")
    with pytest.raises(BadInputError, match="bucket `other` does not exist") as caught:
        targets.of(f"{other}/serving").versions()
    assert caught.value.key == "pusher.to"
    with pytest.raises(UserError, match=rf"{other}/a/1: nothing can be read there"):
        targets.of(f"{bucket}/a").push(f"{other}/a/1", 1)


def test_a_server_that_rejects_is_reported_with_the_credentials(monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Rejecting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("S3_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(UserError) as caught:
        targets.of("s3://bucket/serving").versions()
    server.shutdown()
    server.server_close()
    message = str(caught.value)
    assert message.startswith("pusher.to: s3://bucket/serving: nothing can be read")
    assert "ACCESS_DENIED" in message and "AWS_ACCESS_KEY_ID" in message


class _Rejecting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

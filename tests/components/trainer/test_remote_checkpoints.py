"""What of a training's checkpoints is known without TensorFlow."""

from __future__ import annotations

import time

import pytest

from strategos.components.files import places, storage
from strategos.components.trainer import remote_checkpoints


@pytest.mark.parametrize("where", ["files", "objects"])
def test_the_newest_checkpoint_counts_once_it_is_complete(where, tmp_path, request):
    url = str(tmp_path)
    if where == "objects":
        url = f"{request.getfixturevalue('bucket')}/training"
    folder = places.at(url)
    assert remote_checkpoints.newest_complete(folder) == 0
    for name in ("step-0000000007/state.json", "step-0000000014/part"):
        storage.write(f"{url}/{name}", "x")
    assert remote_checkpoints.newest(folder) == 14
    assert remote_checkpoints.newest_complete(folder) == 7
    storage.write(f"{url}/step-0000000014/state.json", "x")
    assert remote_checkpoints.newest_complete(folder) == 14


def test_a_store_that_is_away_is_asked_for_less_time_than_a_heartbeat_may_take(
    monkeypatch, free_ports
):
    monkeypatch.setenv("S3_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    began = time.monotonic()
    assert remote_checkpoints.newest_complete(places.at("s3://bucket/away")) == 0
    assert time.monotonic() - began < 6

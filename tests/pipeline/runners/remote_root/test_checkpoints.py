"""Copies of checkpoints on S3."""

from __future__ import annotations

import shutil

import pytest

from strategos.components.files import listing, storage
from strategos.components.trainer import finished
from strategos.pipeline.runners.remote_root import checkpoints


@pytest.fixture
def url(bucket, request):
    return f"{bucket}/{request.node.name}/checkpoints/key"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a training; nobody waits before it is looked at again."""
    monkeypatch.setattr(checkpoints, "_LOOK_SECONDS", 0.0)
    return tmp_path / "checkpoints"


def save(folder, step, complete=True):
    checkpoint = folder / f"step-{step:010d}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "arrays.npz").write_text(str(step))
    if complete:
        (checkpoint / "state.json").touch()


def steps(url):
    """The steps whose checkpoints at a URL are complete, and those that have begun."""
    found = [each.path.split("/")[-2:] for each in listing.objects(url)]
    return (
        [int(name[5:]) for name, file in found if file == "state.json"],
        sorted({int(name[5:]) for name, _ in found}),
    )


def test_complete_checkpoints_are_copied_and_removed_like_those_of_the_training(
    folder, url
):
    with checkpoints.following(folder, url):
        save(folder, 1)
        save(folder, 2, complete=False)
    assert steps(url) == ([1], [1])
    with checkpoints.following(folder, url):
        save(folder, 3)
        shutil.rmtree(folder / "step-0000000001")
    assert steps(url) == ([3], [3])


def test_training_on_another_machine_gets_the_newest(folder, url, tmp_path):
    with checkpoints.following(folder, url):
        save(folder, 9)
        save(folder, 10)
    save(tmp_path / "other", 9)
    save(tmp_path / "other", 10, complete=False)
    with checkpoints.following(tmp_path / "other", url):
        assert (tmp_path / "other/step-0000000010/state.json").exists()
        assert (tmp_path / "other/step-0000000010/arrays.npz").read_text() == "10"


def test_own_checkpoint_is_kept_if_it_is_newer(folder, url):
    with checkpoints.following(folder, url):
        save(folder, 1)
    save(folder, 2)
    (folder / "step-0000000002/arrays.npz").write_text("own")
    with checkpoints.following(folder, url):
        assert (folder / "step-0000000002/arrays.npz").read_text() == "own"


def test_checkpoints_of_a_finished_model_are_not_copied(folder, url):
    folder.mkdir()
    (folder / finished.MARK).touch()
    with checkpoints.following(folder, url):
        save(folder, 1)
    assert steps(url) == ([], [])


def test_training_goes_on_while_the_store_rejects_checkpoints(folder, url, monkeypatch):
    def fail(*_, **__):
        raise OSError("the store does not answer")

    with monkeypatch.context() as patch, checkpoints.following(folder, url):
        patch.setattr(storage, "put", fail)
        save(folder, 1)
    assert (folder / "step-0000000001/state.json").exists()
    assert steps(url) == ([], [])

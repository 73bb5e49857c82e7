"""Damaged artifacts: found by content, whatever was damaged, and withdrawn."""

from __future__ import annotations

import itertools
import os
import random

import ml_metadata
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.root import contents, metadata

_NUMBERS = itertools.count()
KEY = "0123456789abcdef"
FILES = ("columns/part-0", "columns/part-1", "empty", "deep/er/note.txt")


@pytest.fixture
def recorded(tmp_path):
    """Records an artifact with the files of a folder: `recorded(name)` → its folder."""
    root = tmp_path / "root"
    root.mkdir()
    store = ml_metadata.MetadataStore(metadata.connection(root))
    kind = store.put_artifact_type(mlmd.ArtifactType(name="Examples"))
    run = store.put_execution_type(mlmd.ExecutionType(name="Transform"))

    def make(name):
        folder = root / name
        for number, file in enumerate(FILES):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            generator = random.Random(number)
            size = 0 if file == "empty" else 5000
            (folder / file).write_bytes(generator.randbytes(size))
        state = mlmd.Artifact.LIVE
        artifact = mlmd.Artifact(type_id=kind, uri=str(folder), state=state)
        event = mlmd.Event(type=mlmd.Event.OUTPUT)
        execution, *_ = store.put_execution(
            mlmd.Execution(type_id=run), [(artifact, event)], []
        )
        contents.record(store, execution, str(root), KEY)
        return folder

    make.store, make.root = store, str(root)
    return make


def withdrawn(recorded, keys=(KEY,)):
    found = contents.damaged(recorded.store, keys, recorded.root)
    contents.withdraw(recorded.store, found)
    return [(damage.artifact.uri, damage.differences) for damage in found]


def flip(path, place):
    """Changes a bit, and keeps size and modification time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGES = {
    "flip": flip,
    "truncate": lambda path, place: os.truncate(path, place % 5000),
    "remove": lambda path, place: path.unlink(),
    "append": lambda path, place: path.open("ab").write(b"x"),
}


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    file=st.sampled_from([x for x in FILES if x != "empty"]),
    how=st.sampled_from(sorted(DAMAGES)),
    place=st.integers(0, 4999),
)
def test_any_damage_withdraws_the_artifact_once(recorded, file, how, place):
    number = next(_NUMBERS)
    whole, damaged = recorded(f"whole-{number}"), recorded(f"damaged-{number}")
    assert withdrawn(recorded) == []
    DAMAGES[how](damaged / file, place)
    verb = "missing" if how == "remove" else "changed"
    expected = f"{file} {verb} (of 4 files)"
    assert withdrawn(recorded) == [(str(damaged), expected)]
    assert withdrawn(recorded) == []
    (artifact,) = recorded.store.get_artifacts_by_uri(str(damaged))
    assert artifact.state == mlmd.Artifact.MARKED_FOR_DELETION
    (artifact,) = recorded.store.get_artifacts_by_uri(str(whole))
    assert artifact.state == mlmd.Artifact.LIVE


def test_a_new_file_is_damage_and_another_nodes_key_is_not_looked_at(recorded):
    folder = recorded("examples")
    (folder / "more").touch()
    assert withdrawn(recorded, ["another"]) == []
    assert withdrawn(recorded) == [(str(folder), "more changed (of 5 files)")]


def test_files_that_were_only_touched_or_copied_are_whole(recorded):
    folder = recorded("examples")
    for file in FILES:
        content = (folder / file).read_bytes()
        (folder / file).unlink()
        (folder / file).write_bytes(content)
    assert withdrawn(recorded) == []

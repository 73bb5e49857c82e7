"""The history of a root that was moved, copied, or is reached by another path."""

from __future__ import annotations

import shutil

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.history import store
from strategos.pipeline.root import lock, metadata


@pytest.fixture
def root(tmp_path):
    """A root with one run, one artifact in it, and one artifact elsewhere."""
    root = tmp_path / "old" / "runs"
    root.mkdir(parents=True)
    written = ml_metadata.MetadataStore(metadata.connection(root))
    kind = written.put_artifact_type(
        mlmd.ArtifactType(name="Model", properties={"weights": mlmd.STRING})
    )
    inside = mlmd.Artifact(type_id=kind, uri=f"{root}/p/Trainer/model/1")
    inside.properties["weights"].string_value = f"{root}/p/Trainer/model/0"
    inside.custom_properties["path"].string_value = str(root) + "-other/1"
    inside.custom_properties["rows"].int_value = 3
    written.put_artifacts([inside, mlmd.Artifact(type_id=kind, uri="/elsewhere/1")])
    kind = written.put_context_type(mlmd.ContextType(name="pipeline_run"))
    run = mlmd.Context(type_id=kind, name="r1")
    run.custom_properties["log"].string_value = f"{root}/.strategos/runs/r1/log.txt"
    written.put_contexts([run])
    return root


def opened(root):
    """Opens the history at `root`; returns the paths in it, and the log."""
    found = store.Store(metadata.connection(root), root=root).mlmd
    (run,) = found.get_contexts()
    artifacts = sorted(found.get_artifacts(), key=lambda artifact: artifact.id)
    values = [artifact.uri for artifact in artifacts]
    values.append(artifacts[0].properties["weights"].string_value)
    values.append(artifacts[0].custom_properties["path"].string_value)
    assert artifacts[0].custom_properties["rows"].int_value == 3
    return [*values, run.custom_properties["log"].string_value]


def expected(root, first):
    below = ("p/Trainer/model/1", "p/Trainer/model/0", ".strategos/runs/r1/log.txt")
    uri, weights, log = (f"{root}/{name}" for name in below)
    return [uri, "/elsewhere/1", weights, f"{first}-other/1", log]


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_the_history_follows_a_moved_root_once(root, tmp_path, how, capsys):
    new = tmp_path / "new" / "runs"
    how(str(root), str(new))
    assert opened(new) == expected(new, first=root)
    assert f"{new} was moved or copied here from {root}" in capsys.readouterr().err
    assert opened(new) == expected(new, first=root)
    assert capsys.readouterr().err == ""
    if how is shutil.copytree:
        assert opened(root) == expected(root, first=root)


def test_another_path_to_the_same_root_is_no_move(root, tmp_path, capsys):
    link = tmp_path / "link"
    link.symlink_to(root.parent)
    assert opened(link / "runs") == expected(root, first=root)
    assert capsys.readouterr().err == ""


def test_while_a_run_is_on_the_history_is_left_as_it_is(root, tmp_path):
    new = tmp_path / "new"
    shutil.move(root, new)
    with lock.hold(new, run_id="r2"):
        assert opened(new) == expected(root, first=root)
    assert opened(new) == expected(new, first=root)


def test_what_moved_along_is_followed_and_other_paths_are_not(root, tmp_path):
    """A pushed version beside the root, and data that stay where they are."""
    serving, data = root.parent / "serving" / "1", tmp_path / "data"
    serving.mkdir(parents=True)
    data.mkdir()
    written = ml_metadata.MetadataStore(metadata.connection(root))
    link = root / "p" / "Pusher" / "7"
    link.parent.mkdir(parents=True)
    link.symlink_to(serving)
    pushed = mlmd.Artifact(type_id=written.get_artifact_type("Model").id, uri=str(link))
    facts = {"to": str(serving), "files": f'["{data}", "{serving}"]', "é": "/ä/ö"}
    facts["removed"] = f"{serving.parent}/0"
    for name, value in facts.items():
        pushed.custom_properties[name].string_value = value
    written.put_artifacts([pushed])
    new = tmp_path / "new"
    root.parent.rename(new)
    found = store.Store(metadata.connection(new / "runs")).mlmd
    (pushed,) = found.get_artifacts_by_uri(f"{new}/runs/p/Pusher/7")
    assert {name: pushed.custom_properties[name].string_value for name in facts} == {
        "to": f"{new}/serving/1",
        "files": f'["{data}", "{new}/serving/1"]',
        "é": "/ä/ö",
        "removed": f"{new}/serving/0",
    }
    assert (new / "runs" / "p" / "Pusher" / "7").resolve() == new / "serving" / "1"

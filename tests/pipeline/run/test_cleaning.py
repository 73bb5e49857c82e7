"""What `clean` removes and what it keeps, in a real database and real folders."""

from __future__ import annotations

import os
import shutil
import time
from types import SimpleNamespace

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.files import commit
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import metadata
from strategos.pipeline.run import cleaning

LATER = 60.0


@pytest.fixture
def root(tmp_path):
    """Runs 1 to 5; 3 took its data from the cache, 5 failed; versions 2 and 4 exist."""
    root = tmp_path / "runs"
    root.mkdir()
    store = ml_metadata.MetadataStore(metadata.connection(root))
    types = {
        name: store.put_artifact_type(mlmd.ArtifactType(name=name))
        for name in ("Examples", "Model", "PushedModel")
    }
    runs = store.put_context_type(mlmd.ContextType(name="pipeline_run"))
    pipelines = store.put_context_type(mlmd.ContextType(name="pipeline"))
    kind = store.put_execution_type(mlmd.ExecutionType(name="node"))
    store.put_contexts([mlmd.Context(type_id=pipelines, name="p")])
    ids, made = iter(range(1, 99)), {}

    def execute(run, read, *artifacts):
        execution = mlmd.Execution(type_id=kind, last_known_state=3)
        pairs = [(each, mlmd.Event(type=mlmd.Event.INPUT)) for each in read]
        pairs += [(each, mlmd.Event(type=mlmd.Event.OUTPUT)) for each in artifacts]
        _, known, _ = store.put_execution(execution, pairs, [run])
        for artifact, id in zip([*read, *artifacts], known, strict=True):
            artifact.id = id

    def artifact(type, node, output):
        folder = root / "p" / node / output / str(next(ids))
        folder.mkdir(parents=True)
        (folder / "content").write_text("x" * 1000)
        found = mlmd.Artifact(type_id=types[type], uri=str(folder))
        found.state = mlmd.Artifact.LIVE
        return found

    for number in range(1, 6):
        run = mlmd.Context(type_id=runs, name=f"run-{number}")
        run.custom_properties["started"].double_value = time.time() + number
        outcome = "failed" if number == 5 else "blessed"
        run.custom_properties["outcome"].string_value = outcome
        (run.id,) = store.put_contexts([run])
        (root / ".strategos" / "runs" / run.name).mkdir(parents=True)
        examples = artifact("Examples", "ExampleGen", "examples")
        if number == 3:
            shutil.rmtree(examples.uri)
            examples = made[2, "Examples"]
        execute(run, [], examples)
        made[number, "Examples"] = examples
        if number == 5:
            break
        model = artifact("Model", "Trainer", "model")
        pushed = artifact("PushedModel", "Pusher", "pushed_model")
        version = tmp_path / "serving" / str(number)
        pushed.custom_properties["pushed"].int_value = 1
        pushed.custom_properties["pushed_destination"].string_value = str(version)
        version.mkdir(parents=True)
        shutil.rmtree(pushed.uri)
        os.symlink(version, pushed.uri)
        execute(run, [examples], model)
        execute(run, [model], pushed)
        made |= {(number, "Model"): model, (number, "PushedModel"): pushed}
        if number not in (2, 4):
            shutil.rmtree(version)
    store = Store(metadata.connection(root), root=root)
    return SimpleNamespace(store=store, made=made, path=root, folder=tmp_path)


def there(root):
    return {name for name, each in root.made.items() if os.path.lexists(each.uri)}


def states(root):
    found = root.store.mlmd.get_artifacts()
    return {mlmd.Artifact.State.Name(each.state) for each in found}


def test_what_versions_and_kept_runs_depend_on_stays(root):
    items = cleaning.find(root.store, keep=1, before=time.time() + LATER)
    gone = {(1, "Examples"), (1, "Model"), (1, "PushedModel")}
    gone |= {(3, "Model"), (3, "PushedModel")}
    assert {each.path for each in items if each.artifact} == {
        root.made[name].uri for name in gone
    }
    assert sum(each.bytes for each in items if each.kind == "Model") > 2000
    assert {each.path.rpartition("/")[2] for each in items if each.kind == "log"} == {
        *("run-1", "run-3")
    }
    before = there(root)
    cleaning.remove(root.store, items)
    assert there(root) == before - gone
    assert states(root) == {"LIVE", "DELETED"}
    assert (root.folder / "serving" / "2").is_dir()
    again = cleaning.find(root.store, keep=1, before=time.time() + LATER)
    assert again == []


def test_newer_or_enough_runs_are_kept(root):
    assert cleaning.find(root.store, keep=9, before=time.time() + LATER) == []
    assert cleaning.find(root.store, keep=1, before=time.time() - LATER) == []
    two = cleaning.find(root.store, keep=2, before=time.time() + LATER)
    assert root.made[3, "Model"].uri not in {each.path for each in two}


def test_versions_that_were_moved_by_hand_are_versions_still(root):
    moved = root.folder / "moved"
    (root.folder / "serving").rename(moved)
    find = cleaning.find(root.store, 1, time.time() + LATER, serving=[str(moved)])
    assert root.made[2, "Model"].uri not in {each.path for each in find}
    find = cleaning.find(root.store, 1, time.time() + LATER)
    assert root.made[2, "Model"].uri in {each.path for each in find}


def test_a_serving_folder_that_is_not_mounted_has_all_its_versions(root):
    serving = root.folder / "serving"
    serving.rename(root.folder / "elsewhere")
    find = cleaning.find(root.store, 1, time.time() + LATER, serving=[str(serving)])
    assert not {root.made[n, "Model"].uri for n in (1, 2, 3)} & {i.path for i in find}


def test_a_root_that_is_also_known_by_a_link_is_cleaned_alike(root):
    expected = cleaning.find(root.store, keep=1, before=time.time() + LATER)
    link = root.folder / "link"
    link.symlink_to(root.path)
    some = root.store.mlmd.get_artifacts()[::2]
    for each in some:
        each.uri = each.uri.replace(str(root.path), str(link))
    root.store.mlmd.put_artifacts(some)
    for name in (root.path, link):
        root.store.root = name
        found = cleaning.find(root.store, keep=1, before=time.time() + LATER)
        assert found == expected


def test_outputs_of_another_machine_with_this_root_stay_in_a_shared_database(root):
    shutil.rmtree(root.made[1, "Model"].uri)  # is there, but not on this machine
    for is_local in (True, False):
        root.store.is_local = is_local
        items = cleaning.find(root.store, keep=1, before=time.time() + LATER)
        paths = {each.path for each in items}
        assert (root.made[1, "Model"].uri in paths) == is_local
        assert root.made[1, "Examples"].uri in paths


def test_remains_of_killed_nodes_and_checkpoints_go_by_age(root):
    trainer = root.path / "p" / "Trainer"
    remains = [
        trainer / "model" / "77",
        trainer / "checkpoints" / "a1b2",
        trainer / ".system" / "executor_execution" / "9",
    ]
    for folder in remains:
        folder.mkdir(parents=True)
        (folder / "file").write_text("é")
    found = cleaning.find(root.store, keep=9, before=time.time() + LATER)
    assert {each.path for each in found} == {str(folder) for folder in remains}
    assert cleaning.find(root.store, keep=9, before=time.time() - LATER) == []


def test_what_a_kill_left_is_removed_by_the_next_clean(root, monkeypatch):
    items = cleaning.find(root.store, keep=1, before=time.time() + LATER)
    with monkeypatch.context() as patched:
        patched.setattr(commit.shutil, "rmtree", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cleaning.remove(root.store, items)
    assert "MARKED_FOR_DELETION" in states(root)
    again = cleaning.find(root.store, keep=1, before=time.time() + LATER)
    assert again == items
    cleaning.remove(root.store, again)
    assert (1, "Model") not in there(root) and states(root) == {"LIVE", "DELETED"}


def test_a_database_that_knows_nothing_of_a_root_removes_nothing_there(root):
    other = root.folder / "other"
    (other / "p" / "Trainer" / "model" / "1").mkdir(parents=True)
    root.store.root = other
    assert cleaning.find(root.store, keep=1, before=time.time() + LATER) == []


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("span-statistics", "statistics"),
        ("evaluation-sums", "sums"),
        ("analysis-states", "states"),
    ],
)
def test_kept_measurements_go_by_their_last_use(root, folder, kind):
    folder = root.path / ".strategos" / folder
    folder.mkdir()
    for name, age in (("old.pb", 100), ("used.json", 0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    (found,) = cleaning.find(root.store, keep=9, before=time.time() - LATER)
    assert (found.kind, found.path) == (kind, str(folder / "old.pb"))


def test_local_checkpoints_of_a_remote_root_go_by_their_age(root):
    trainer = root.path / ".strategos/copies/s3/bucket/root/p/Trainer"
    for name, age in (("old", 100), ("new", 0)):
        file = trainer / "checkpoints" / name / "step-1" / "state.json"
        file.parent.mkdir(parents=True)
        file.touch()
        for path in (file, file.parent, file.parent.parent):
            os.utime(path, (time.time() - age,) * 2)
    (found,) = cleaning.find(root.store, keep=9, before=time.time() - LATER)
    assert (found.kind, found.path) == ("checkpoint", f"{trainer}/checkpoints/old")


def test_a_remote_root_and_target_are_cleaned_alike(root, bucket, bucket_client):
    """The same runs, whose artifacts and versions are in an object store."""
    url, serving = f"{bucket}/runs", f"{bucket}/serving"
    artifacts = root.store.mlmd.get_artifacts()
    for each in artifacts:
        each.uri = each.uri.replace(str(root.path), url)
        _put(bucket_client, f"{each.uri}/content")
        pushed = each.custom_properties["pushed_destination"]
        pushed.string_value = pushed.string_value.replace(str(root.folder), bucket)
    root.store.mlmd.put_artifacts(artifacts)
    for version in (2, 4):
        _put(bucket_client, f"{serving}/{version}/saved_model.pb")
    _put(bucket_client, f"{url}/p/Trainer/checkpoints/a1b2/weights")
    _put(bucket_client, f"{url}/p/Trainer/.system/executor_execution/9/log")
    root.store.root = url
    find = (root.store, 1, time.time() + LATER, [serving])
    items = cleaning.find(*find)
    gone = [root.made[name].uri for name in ((1, "Examples"), (1, "Model"))]
    gone += [root.made[name].uri for name in ((1, "PushedModel"), (3, "Model"))]
    gone = [uri.replace(str(root.path), url) for uri in gone]
    gone += [root.made[3, "PushedModel"].uri.replace(str(root.path), url)]
    gone += [f"{url}/p/Trainer/checkpoints/a1b2"]
    gone += [f"{url}/p/Trainer/.system/executor_execution/9"]
    assert {each.path for each in items} == set(gone)
    assert {each.bytes for each in items} == {7}
    cleaning.remove(root.store, items)
    assert cleaning.find(*find) == [] and states(root) == {"LIVE", "DELETED"}
    found = bucket_client.list_objects_v2(Bucket="bucket")["Contents"]
    left = [f"{bucket}/{each['Key']}" for each in found]
    assert not [each for each in left if each.startswith(tuple(f"{g}/" for g in gone))]
    assert f"{serving}/2/saved_model.pb" in left


def _put(client, url):
    client.put_object(
        Bucket="bucket", Key=url.removeprefix("s3://bucket/"), Body=b"content"
    )

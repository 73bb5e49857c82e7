"""What counts as cached: content, wherever it lies and however it is named."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

NODES = 12

READS = {
    "preprocessing.py": """

open(__file__[: -len("preprocessing.py")] + "".join(["scale", ".dat"]))
""",
    "model.py": """

class Read(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        tf.io.read_file(__file__[: -len("model.py")] + "".join(["rate", ".dat"]))

hold = callbacks

def callbacks(context):
    return [Read(), *hold(context)]
""",
}


def states(workspace, *arguments):
    """Runs, and returns the state of each node."""
    workspace.run(*arguments)
    return workspace.states()


def replace(path, old, new):
    """Edits a file and keeps its size and time."""
    before = path.stat()
    text = path.read_text()
    assert old in text and len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture(scope="module")
def ran(small):
    """The small workload after a first run."""
    assert set(states(small).values()) == {"complete"}
    return small


@pytest.mark.long
def test_the_same_files_by_other_paths_are_cached(ran):
    folder = ran.folder
    link = folder.parent.parent / f"link-{folder.parent.name}"
    link.symlink_to(folder.parent)
    places = [
        ("data/../pipeline.yaml", folder),
        (f"{link}/small/pipeline.yaml", "/"),
        ("pipeline.yaml", folder, "--set", "run.root=./runs/"),
        ("pipeline.yaml", folder, "--set", f"run.root={link}/small/runs"),
        ("pipeline.yaml", folder, "--set", f"pusher.to={link}/small/serving/small"),
    ]
    for pipeline, cwd, *arguments in places:
        done = ran.call("run", pipeline, *arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("  cached") == NODES, done.stdout
        assert arguments or "compiling" not in done.stderr


def test_edited_data_that_keep_size_and_time_are_read_again(ran):
    rows = ran.folder / "data" / "span-1" / "rows.csv"
    content = rows.read_text()
    replace(rows, "\n38,0\n", "\n39,0\n")
    assert states(ran, "--to", "ExampleGen")["ExampleGen"] == "complete"
    replace(rows, rows.read_text(), content)
    assert states(ran, "--to", "ExampleGen")["ExampleGen"] == "cached"


def test_data_that_were_only_touched_or_copied_are_cached(ran):
    rows = ran.folder / "data" / "span-1" / "rows.csv"
    rows.touch()
    content = rows.read_bytes()
    rows.unlink()
    rows.write_bytes(content)
    assert states(ran, "--to", "ExampleGen")["ExampleGen"] == "cached"


@pytest.mark.long
def test_a_damaged_artifact_is_made_again_and_the_run_says_so(ran):
    assert set(states(ran).values()) == {"cached"}
    made = ran.folder / "runs" / "small" / "StatisticsGen" / "statistics"
    (newest,) = (path for path in made.iterdir() if path.is_dir())
    (file,) = (newest / "Split-eval").iterdir()
    before = file.stat()
    file.write_bytes(bytes(x ^ 1 for x in file.read_bytes()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = ran.run()
    assert (
        f"{newest} was damaged after it was made: Split-eval/{file.name} changed"
        in (" ".join(done.stdout.split()))
    )
    after = ran.states()
    assert (after["ExampleGen"], after["StatisticsGen"]) == ("cached", "complete")
    assert set(states(ran).values()) == {"cached"}


@pytest.mark.long
def test_statistics_by_slice_run_alone_and_are_in_the_report(ran):
    further = {"DetailedStatistics", "TransformedStatistics"}
    bins = "{slices: [{feature: x, bins: [50]}], transformed: true, sample: 0.5}"
    found = states(ran, "--set", f"statistics={bins}")
    assert {name for name, state in found.items() if state == "complete"} == further
    place = ran.strategos("report", str(ran.yaml)).stdout.strip()
    page = Path(place).read_text()
    for text in ("x_[50, inf]", "0.5 of the rows", "split train after Transform"):
        assert text in page
    other = "{slices: [late], transformed: true, sample: 0.5}"
    found = states(ran, "--set", f"statistics={other}")
    assert found.pop("DetailedStatistics") == "complete"
    assert set(found.values()) == {"cached"}
    assert set(states(ran).values()) == {"cached"}


@pytest.mark.long
def test_files_with_computed_names_are_followed_in_each_process(ran):
    """`preprocessing_fn` reads in the executor, the callback in a process of a gang."""
    folder = ran.folder
    sources = {x: (folder / x).read_text() for x in ("preprocessing.py", "model.py")}
    scale, rate, unrelated = (folder / f"{x}.dat" for x in ("scale", "rate", "other"))
    for path in (scale, rate, unrelated):
        path.write_text("1")
    for name, text in sources.items():
        (folder / name).write_text(text + READS[name])
    to = ("--to", "Trainer")
    found = states(ran, *to)
    assert (found["Transform"], found["Trainer"]) == ("complete", "complete"), found
    rate.write_text("2")
    unrelated.write_text("2")
    done = ran.run(*to)
    assert "Trainer runs again, because what its code uses has changed: rate.dat" in (
        " ".join(done.stderr.split())
    )
    found = ran.states()
    assert (found["Transform"], found["Trainer"]) == ("cached", "complete")
    scale.write_text("2")
    assert states(ran, "--to", "Transform")["Transform"] == "complete"
    scale.write_text("1")
    rate.write_text("1")
    assert set(states(ran, *to).values()) == {"cached"}
    for name, text in sources.items():
        (folder / name).write_text(text)


@pytest.mark.long
def test_own_nodes_run_again_when_their_code_a_helper_or_a_file_changes(
    ran, copy_workload
):
    copy_workload("own", ran.folder)
    overlay = ("--overlay", str(ran.folder / "own.yaml"))
    to = (*overlay, "--to", "Limit")

    def own(*arguments):
        found = states(ran, *to, *arguments)
        assert set(found.values()) - {"complete"} <= {"cached"}
        return found["ExampleGen"], found["Counted"], found["Limit"]

    helper, names = ran.folder / "helper.py", ran.folder / "names.dat"
    names.write_text("files")
    reads = 'open(__file__.replace("helper", "names")[:-2] + "dat").read()'
    replace_all(helper, "{unit}", f"{{{reads}}}".replace('"', "'"))
    assert own() == ("cached", "complete", "complete")
    assert own() == ("cached", "cached", "cached")
    names.write_text("folders")
    assert own() == ("cached", "complete", "complete")
    names.write_text("files")
    assert own() == ("cached", "cached", "cached")
    replace_all(helper, "return f", "return str() + f")
    assert own() == ("cached", "complete", "complete")
    replace_all(ran.folder / "own.py", "is more than", "exceeds")
    done = ran.run(*to, "--set", "nodes.Limit.parameters.most=0.5", expect=3)
    assert "4 exceeds 0.5" in done.stderr
    assert ran.last_run()["outcome"] == "stopped"
    wrong = ("--set", "nodes.Limit.parameters.most=few")
    done = ran.strategos("validate", str(ran.yaml), *overlay, *wrong, expect=2)
    assert 'nodes.Limit.parameters.most: received "few" (text)' in done.stderr
    made = (ran.folder / "runs" / "small" / "Counted" / "counted").glob("[0-9]*")
    shown = ran.strategos("lineage", str(max(made)), str(ran.yaml), "--json")
    steps = [each["node"] for each in json.loads(shown.stdout)["steps"]]
    assert steps == ["ExampleGen", "Counted"]
    ran.run()  # among the newest runs, whose cache moves with a root


def replace_all(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.long
def test_a_second_checkout_with_the_same_root_is_cached(make_small, tmp_path):
    root, serving = tmp_path / "root", tmp_path / "serving"
    sets = (f"run.root={root}", f"pusher.to={serving}", "trainer.seed=7")
    first = make_small(tmp_path / "a", *sets)
    first.run()
    deeper = tmp_path / "ci" / "work" / "7"
    shutil.copytree(tmp_path / "a", deeper, copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "a")
    second = dataclasses.replace(first, folder=deeper / "small")
    done = second.run()
    assert "compiling" not in done.stderr
    shown = second.strategos("runs", "show", "--root", str(root), "--json")
    nodes = json.loads(shown.stdout)["nodes"]
    assert {node["state"] for node in nodes} == {"cached"}
    replace(deeper / "small" / "model.py", '"sgd"', "'sgd'")
    second.run("--to", "Trainer")
    shown = second.strategos("runs", "show", "--root", str(root), "--json")
    nodes = {node["name"]: node["state"] for node in json.loads(shown.stdout)["nodes"]}
    assert nodes["Trainer"] == "complete" and nodes["Transform"] == "cached"


@pytest.mark.long
def test_a_root_that_was_moved_is_not_mixed_with_a_new_one_at_its_place(
    ran, make_small, tmp_path
):
    """The new root has artifacts of the same names, with other content."""
    checkout = ran.folder.parent
    checkout.rename(tmp_path / "b")
    new = make_small(checkout)
    rows = new.folder / "data" / "span-1" / "rows.csv"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:101]))
    new.run("--to", "StatisticsGen")
    moved = dataclasses.replace(ran, folder=tmp_path / "b" / "small")
    done = moved.run()
    assert f"was moved or copied here from {new.folder}/runs; the" in done.stderr
    assert set(moved.states().values()) == {"cached"}
    assert "moved" not in moved.run("--set", "trainer.seed=2").stderr
    run = moved.last_run()
    nodes = {node["name"]: node for node in run["nodes"]}
    assert nodes["ExampleGen"]["rows"] == 400
    assert nodes["Transform"]["state"] == "cached"
    assert nodes["Trainer"]["state"] == "complete"
    assert run["summary"]["baseline"] is not None  # the version that moved along
    shown = moved.strategos("lineage", run["run_id"], str(moved.yaml), "--json").stdout
    uris = [o["uri"] for step in json.loads(shown)["steps"] for o in step["outputs"]]
    assert uris and all(uri.startswith(f"{moved.folder}/runs/") for uri in uris)

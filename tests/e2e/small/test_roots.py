"""Which root `runs`, `lineage` and `tensorboard` show where none is named."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def two(make_small, make_workspace, tmp_path_factory):
    """Two workloads of one user, which pushed a model each; `two` ran last."""
    home = tmp_path_factory.mktemp("home")
    made = []
    for name in ("one", "two"):
        workspace = make_small(home / name)
        workspace.yaml.write_text(
            workspace.yaml.read_text().replace("name: small", f"name: {name}")
        )
        made.append(workspace)
    for workspace in made:
        done = call(workspace, "run", "pipeline.yaml", cwd=workspace.folder)
        assert done.returncode == 0, done.stderr
    return made


def call(workspace, *arguments, cwd):
    """Runs `strategos …` in `cwd`, as the user of both workloads."""
    home = workspace.folder.parent.parent
    return workspace.call(*arguments, cwd=cwd, XDG_STATE_HOME=str(home / "state"))


def test_a_folder_with_a_yaml_shows_its_own_root(two):
    one, _ = two
    done = call(one, "runs", "--json", cwd=one.folder)
    assert [run["pipeline"] for run in json.loads(done.stdout)] == ["one"]
    assert done.stderr == "root runs (of pipeline.yaml in this folder)\n"
    shown = call(one, "runs", "show", cwd=one.folder)
    assert "✓ one  blessed" in shown.stdout


def test_elsewhere_the_last_root_is_shown_and_named(two):
    one, last = two
    elsewhere = one.folder / "data"
    done = call(one, "runs", "--json", cwd=elsewhere)
    assert [run["pipeline"] for run in json.loads(done.stdout)] == ["two"]
    assert f"root {last.folder}/runs (the last one used;" in done.stderr


def test_a_named_root_wins(two):
    one, last = two
    done = call(one, "runs", "--root", "../../two/small/runs/", cwd=one.folder)
    assert f"root {last.folder}/runs (--root)" in done.stderr
    assert "blessed" in done.stdout


def test_a_folder_whose_pipeline_never_ran_shows_no_other(two):
    one, _ = two
    new = one.folder / "new"
    new.mkdir()
    (new / "pipeline.yaml").write_text(one.yaml.read_text())
    done = call(one, "runs", cwd=new)
    assert done.returncode == 1
    assert "no runs yet under" in done.stderr and "Traceback" not in done.stderr


def test_lineage_finds_the_root_that_pushed_a_path(two):
    one, last = two
    for workspace, cwd in ((one, last.folder), (last, one.folder)):
        (version,) = workspace.serving()
        folder = workspace.folder / "serving" / "small"
        for path in (folder / version, folder, f"{folder}/{version}/"):
            done = call(one, "lineage", str(path), "--json", cwd=cwd)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["model"] == str(folder / version)
            assert f"(it pushed {path})" in done.stderr
            assert f"root {workspace.folder}/runs" in done.stderr


def test_lineage_of_what_nobody_pushed_is_refused_by_the_root_that_was_asked(two):
    one, _ = two
    done = call(one, "lineage", "data", cwd=one.folder)
    assert done.returncode == 1
    assert "root runs (of pipeline.yaml in this folder)" in done.stderr
    assert "data: no such model. Pushed last: " in done.stderr

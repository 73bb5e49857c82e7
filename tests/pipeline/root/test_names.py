"""The names of pipelines whose YAML sets none."""

from __future__ import annotations

import shutil

import pytest

from strategos.pipeline import cli
from strategos.pipeline.checks import files
from strategos.pipeline.config import loading
from strategos.pipeline.root import names


@pytest.fixture
def unnamed(workload, tmp_path):
    """A folder with a pipeline without a name, whose root is elsewhere."""
    folder = tmp_path / "shared" / "one"
    shutil.copytree(workload.parent, folder)
    yaml = folder / workload.name
    yaml.write_text(yaml.read_text().replace("name: flights\n", "run: {root: ../r}\n"))
    return folder


def load(folder, *sets):
    return names.named(loading.load(folder / "pipeline.yaml", sets=sets)).config


def run(folder, *sets):
    """The name of a run, and what it reports."""
    config = load(folder, *sets)
    return config.name, names.remember(config)


def test_a_pipeline_that_moved_with_its_root_keeps_its_name(unnamed):
    inside = ("run.root=runs",)
    assert run(unnamed, *inside) == ("one", "")
    moved = unnamed.rename(unnamed.with_name("two"))
    for sets in (inside, ("run.root=runs", "trainer.epochs=2")):
        assert run(moved, *sets) == ("one", "")
    copy = shutil.copytree(moved, unnamed.with_name("three"))
    assert run(copy, *inside) == ("one", "")


def test_a_pipeline_that_moved_beside_its_root_is_taken_over_and_reported(unnamed):
    assert run(unnamed) == ("one", "")
    moved = unnamed.rename(unnamed.with_name("two"))
    assert load(moved).name == "one"
    name, told = run(moved)
    assert name == "one" and f"{unnamed}/pipeline.yaml, which is gone" in told
    assert run(moved) == ("one", "")


def test_a_copy_whose_original_exists_has_its_own_folders_name(unnamed):
    run(unnamed)
    copy = shutil.copytree(unnamed, unnamed.with_name("two"))
    assert run(copy) == ("two", "")
    assert run(unnamed) == ("one", "")


def test_nothing_is_taken_over_if_modules_differ_or_two_are_gone(unnamed):
    run(unnamed)
    moved = unnamed.rename(unnamed.with_name("two"))
    model = moved / "model.py"
    text = model.read_text()
    model.write_text(f"{text}\nMORE = 1\n")
    assert load(moved).name == "two"
    model.write_text(text)
    assert load(moved).name == "one"
    other = shutil.copytree(moved, unnamed.with_name("other"))
    assert run(other)[0] == "one"  # taken over
    run(moved)
    shutil.rmtree(other)
    last = moved.rename(unnamed.with_name("last"))
    assert load(last).name == "last"


def test_validate_recommends_the_name_in_use(unnamed, capsys):
    run(unnamed)
    moved = unnamed.rename(unnamed.with_name("two"))
    for sets, told in (((), True), (("--set", "name=mine"), False)):
        assert cli.main(["validate", str(moved / "pipeline.yaml"), *sets]) == 0
        assert ("Add `name: one`" in capsys.readouterr().out) == told


def test_a_name_that_is_set_counts(unnamed):
    assert run(unnamed, "name=mine") == ("mine", "")
    assert run(unnamed) == ("one", "")
    assert run(unnamed, "name=mine") == ("mine", "")


def test_a_name_is_required_with_metadata_on_a_server(unnamed):
    server = "run.metadata=mysql://user@127.0.0.1:1/db"
    for sets, told in (((), 0), ((server,), 1), ((server, "name=mine"), 0)):
        config = load(unnamed, *sets)
        found = map(str, files.check(config, config.data.listing()))
        needed = [text for text in found if "name: is missing" in text]
        assert len(needed) == told
        assert not told or "Add `name: one`." in needed[0]

"""Where plug-ins come from, and what is wrong with those that cannot be used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from strategos.components import plugins
from strategos.components.errors import UserError
from strategos.components.trainer.launchers.launcher import Launcher

GROUP = "strategos.launchers"
SOURCE = """
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.launchers.local import launch
QUEUE = Launcher("queue", "waits in a queue", launch)
"""
OURS = {"local": "strategos.components.trainer.launchers.local:LAUNCHER"}


@pytest.fixture
def registry():
    return plugins.Registry(GROUP, Launcher, OURS)


def points(*lines: str) -> str:
    return "\n".join([f"[{GROUP}]", *lines])


def problem(registry, name: str) -> str:
    with pytest.raises(UserError) as caught:
        registry[name]
    return str(caught.value)


def test_a_package_is_found_by_name_and_imported_only_when_it_is_used(
    install, registry
):
    install("queues", SOURCE, points("queue = queues:QUEUE"))
    assert list(registry) == ["local", "queue"]
    assert ("queue" in registry, "que" in registry) == (True, False)
    assert "queues" not in sys.modules
    assert registry["queue"].description == "waits in a queue"
    assert "queues" in sys.modules
    with pytest.raises(KeyError):
        registry["que"]


def test_the_workload_has_modules_with_plug_ins(tmp_path, registry):
    (tmp_path / "own.py").write_text(f"{SOURCE}PLUGINS = {{{GROUP!r}: {{'q': QUEUE}}}}")
    plugins.use(str(tmp_path), ["own"])
    try:
        assert registry["q"].name == "queue"
        first = registry.version("q")
        with (tmp_path / "own.py").open("a") as file:
            file.write("# changed\n")
        assert first.startswith("own ")
        assert registry.version("q") != first
    finally:
        plugins.use("", ())


def test_the_version_is_that_of_the_package_and_of_sources_that_are_not_installed(
    install, registry
):
    name = install("queues", SOURCE, points("queue = queues:QUEUE"))
    assert registry.version("queue").startswith("queues 1.2 ")
    assert registry.version("local") == ""
    before = registry.version("queue")
    with open(f"{sys.path[0]}/{name}.py", "a") as file:
        file.write("# changed\n")
    assert registry.version("queue") != before


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("QUEUE = 3", "is 3, not an instance of strategos.components.trainer.launch"),
        ("1 +", "SyntaxError"),
        ("", "AttributeError"),
        *((f"import {each}", f"imports {each} at the top") for each in plugins.HEAVY),
        ("import tensorflow.keras", "imports tensorflow at the top"),
        (
            "try:\n    import tfx\nexcept ImportError:\n    tfx = None",
            "imports tfx at the top",
        ),
    ],
)
def test_a_broken_plug_in_is_named_with_its_package(
    install, registry, monkeypatch, source, said
):
    for name in plugins.HEAVY:
        monkeypatch.delitem(sys.modules, name, raising=False)
    install("queues", source, points("queue = queues:QUEUE"))
    found = problem(registry, "queue")
    assert said in found
    assert "plug-in `queue` (strategos.launchers) of queues 1.2" in found


def test_a_package_whose_module_is_gone_is_named(install, registry):
    install("queues", SOURCE, points("queue = absent:QUEUE"))
    assert "of queues 1.2 cannot be imported: ModuleNotFoundError" in problem(
        registry, "queue"
    )


def test_two_packages_with_one_name_are_named(install, registry):
    install("queues", SOURCE, points("queue = queues:QUEUE"))
    install("lines", SOURCE, points("queue = lines:QUEUE"))
    assert "lines 1.2 and queues 1.2 both have" in problem(registry, "queue")


def test_ours_cannot_be_replaced(install, registry):
    install("queues", SOURCE, points("local = queues:QUEUE"))
    assert registry["local"].name == "local"


def test_a_module_without_plug_ins_is_named(tmp_path):
    (tmp_path / "empty_plugins.py").write_text("")
    try:
        with pytest.raises(UserError, match="empty_plugins in .* defines no plug-ins"):
            plugins.use(str(tmp_path), ["empty_plugins"])
    finally:
        plugins.use("", ())


def test_a_class_stands_for_its_instance(install):
    install("things", "class Thing(int):\n    pass", points("thing = things:Thing"))
    assert plugins.Registry(GROUP, int, {})["thing"] == 0
    found = plugins.Registry(GROUP, int, {}, classes=True)["thing"]
    assert issubclass(found, int)


def test_without_plug_ins_no_package_is_looked_for():
    code = """
from importlib import metadata
def entry_points(**_):
    raise AssertionError("entry points are read")
metadata.entry_points = entry_points
from strategos.components.trainer.launchers import LAUNCHERS
LAUNCHERS["local"], LAUNCHERS["tfjob"], "slurm" in LAUNCHERS
"""
    subprocess.run([sys.executable, "-c", code], check=True)

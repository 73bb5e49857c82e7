from __future__ import annotations

from pathlib import Path

from strategos.components.trainer import launchers


def test_each_module_of_the_folder_is_a_launcher_by_its_name():
    folder = Path(launchers.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "launcher"}
    assert set(launchers.LAUNCHERS.own) == modules
    assert all(launchers.LAUNCHERS[name].name == name for name in modules)

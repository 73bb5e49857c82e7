"""`import strategos`: its names, what it imports, and what it rejects."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import strategos

ROOT = Path(__file__).parents[2]
HEAVY = ("tensorflow", "tfx", "apache_beam", "ml_metadata", "pyarrow", "pydantic")


def imported(program):
    """The heavy packages that a program imports."""
    code = f"{program}; import sys; print(*(n for n in {HEAVY} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_nothing_is_imported_before_it_is_needed(workload):
    assert imported("import strategos; strategos.run, strategos.__version__") == set()
    checked = f"import strategos; assert not strategos.validate({str(workload)!r})"
    assert imported(f"{checked}.problems") <= {"pyarrow", "pydantic"}


def test_each_public_name_is_known_to_type_checkers_and_resolves():
    (block,) = (
        node
        for node in ast.parse(Path(strategos.__file__).read_text()).body
        if isinstance(node, ast.If)
    )
    typed = [
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted([*typed, "PLUGIN_API", "__version__"]) == sorted(strategos.__all__)
    for name in strategos.__all__:
        assert getattr(strategos, name) is not None
    assert set(strategos.__all__) == set(dir(strategos))
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        strategos.train  # noqa: B018


def test_the_page_of_the_python_interface_is_up_to_date():
    script = runpy.run_path(str(ROOT / "scripts" / "api_reference.py"))
    remedy = "stale: run `python scripts/api_reference.py` and commit the result"
    assert (ROOT / "docs" / "api.md").read_text() == script["page"](), remedy


def test_settings_are_given_as_values(workload):
    sets = {"trainer.epochs": 7, "data.missing": {"x": ""}, "trainer.module": "model"}
    loaded = strategos.load(workload, sets=sets)
    assert (loaded.config.trainer.epochs, loaded.config.data.missing) == (7, {"x": ""})
    assert loaded.origins["trainer.epochs"] == "--set"


def test_problems_are_values_with_file_line_and_key(workload):
    text = workload.read_text().replace("label: late", "label: lade")
    workload.write_text(text.replace("module: model", "module: modell"))
    found = {each.key: each for each in strategos.validate(workload).problems}
    assert set(found) == {"label", "trainer.module"}
    line = text[: text.index("label:")].count("\n") + 1
    place = found["label"].place
    assert (place.source, place.line) == (str(workload), line)
    assert isinstance(found["label"], strategos.BadInputError)


def test_a_run_that_is_rejected_raises_every_problem(workload, monkeypatch):
    monkeypatch.chdir(workload.parent)
    text = workload.read_text().replace("label: late", "label: lade")
    workload.write_text(text.replace("module: model", "module: modell"))
    before = os.getcwd(), dict(os.environ), sys.stdout, sys.stderr
    with pytest.raises(strategos.ConfigError) as raised:
        strategos.run(workload.name)
    expected = strategos.validate(workload.name).problems
    assert list(map(str, raised.value.problems)) == list(map(str, expected))
    assert str(raised.value).startswith(f"2 problems in {workload}:\n")
    assert (os.getcwd(), dict(os.environ), sys.stdout, sys.stderr) == before


def test_a_history_without_runs_says_so(workload, capsys):
    with pytest.raises(strategos.UserError, match="no runs"):
        strategos.history(workload)
    assert capsys.readouterr() == ("", "")

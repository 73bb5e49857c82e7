"""docs/tutorial.md, "Your own data", as it is printed there."""

from __future__ import annotations

import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
FILES = ("pipeline.yaml", "preprocessing.py", "model.py")


@pytest.fixture
def tutorial(tmp_path, make_workspace):
    """The files of the tutorial, and data in which cells of `shop` are empty."""
    text = PAGE.read_text().partition("## Your own data")[2].partition("\n## ")[0]
    blocks = re.findall(r"^   ```(?:yaml|python)\n(.*?)^   ```", text, re.M | re.S)
    assert len(blocks) == len(FILES)
    for name, block in zip(FILES, blocks, strict=True):
        (tmp_path / name).write_text(textwrap.dedent(block))
    generator = random.Random(1)
    lines = ["price,shop,bought"]
    for number in range(400):
        shop = "" if number % 7 == 0 else generator.choice(["north", "south"])
        bought = int(shop == "north" or generator.random() < 0.2)
        lines.append(f"{generator.uniform(1, 9):.2f},{shop},{bought}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("\n".join(lines) + "\n")
    return make_workspace(tmp_path, ("pusher={to: serving}", "trainer.batch_size=32"))


def _write_span(tutorial, span, shops):
    """Rows of one span; customers buy in the north, and seldom elsewhere."""
    generator = random.Random(span)
    lines = ["price,shop,bought"]
    for shop in (name for name, count in shops.items() for _ in range(count)):
        bought = int(generator.random() < (0.95 if shop == "north" else 0.1))
        lines.append(f"{generator.uniform(1, 9):.2f},{shop},{bought}")
    folder = tutorial.folder / "data" / f"span-{span}"
    folder.mkdir()
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")


def test_a_warm_start_of_the_tutorial_keeps_what_it_knows_of_each_shop(tutorial):
    spans = ("--set", "data.examples=data/span-{SPAN}/*.csv", "--set")
    spans += ("data.spans=latest", "--set", "trainer.warm_start=latest")
    _write_span(tutorial, 1, {"north": 400, "south": 200, "": 20})
    tutorial.run(*spans, "--set", "trainer.epochs=40")
    before = _answers(tutorial, ["north", "south"])
    _write_span(tutorial, 2, {"east": 150, "south": 100, "north": 50, "": 20})
    done = tutorial.run(*spans, "--set", "trainer.epochs=1")
    after = _answers(tutorial, ["north", "south"])
    assert before[0] - before[1] > 0.5
    assert after == pytest.approx(before, abs=0.1)
    assert "starts fresh" not in done.stdout + done.stderr


def _answers(tutorial, shops):
    rows = tutorial.folder / "rows.csv"
    rows.write_text("\n".join(["price,shop", *(f"5,{x}" for x in shops)]) + "\n")
    done = tutorial.strategos(
        "predict", str(tutorial.yaml), str(rows), "--json", *tutorial.sets()
    )
    return [json.loads(line)["predictions"] for line in done.stdout.splitlines()]


def test_the_tutorial_runs_and_answers_rows_with_an_empty_cell(tutorial):
    tutorial.run()
    answers = _answers(tutorial, ["north", "south", ""])
    assert len(answers) == 3
    assert answers[0] > answers[1]


def test_a_column_with_empty_cells_that_is_not_filled_is_named(tutorial):
    done = tutorial.run("--set", "data.missing.shop=null", expect=1)
    (line,) = (x for x in done.stdout.splitlines() if "dense values of" in x)
    assert "model.py: `build_model`: the model needs dense values of `shop`" in line
    assert "line " in line and "data.missing: {COLUMN" in line
    assert "SparseTensor(" not in done.stdout + done.stderr


def test_a_filled_column_needs_no_empty_cell(tutorial):
    for path in tutorial.folder.glob("data/*.csv"):
        path.write_text(path.read_text().replace(",,", ",south,"))
    tutorial.run()
    assert len(_answers(tutorial, ["north", ""])) == 2


@pytest.mark.install
def test_the_tutorial_runs_in_a_project_without_the_checkout(tutorial, wheel):
    """As docs/install.md says, by uv, in an environment of its own."""
    uv_tool = runpy.run_path(str(ROOT / "scripts" / "uv_tool.py"))
    uv = str(uv_tool["find_or_install"](ROOT / ".cache"))
    page = (ROOT / "docs" / "install.md").read_text()
    (project,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    (tutorial.folder / "pyproject.toml").write_text(project)
    for line in (ROOT / "docs" / "overrides.txt").read_text().splitlines():
        assert line in project
        assert line in (ROOT / "pyproject.toml").read_text()
    own = ("VIRTUAL_ENV", "PYTHONPATH", "TF_ENABLE_ONEDNN_OPTS")
    own += ("PYTHONDONTWRITEBYTECODE",)  # `doctor` rejects it
    env = {k: v for k, v in tutorial.environment().items() if k not in own}

    def call(*words):
        done = subprocess.run(
            [uv, *words],
            cwd=tutorial.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=500,
        )
        logs = (each.read_text() for each in tutorial.folder.rglob("log.txt"))
        assert done.returncode == 0, done.stdout + done.stderr + "".join(logs)
        return done.stdout

    try:
        python = ("--python", os.path.realpath(sys.executable))
        call("add", *python, str(wheel))
        assert "✓ stack" in call("run", "strategos", "doctor")
        assert "  pushed  " in call("run", "strategos", "run", *tutorial.sets())
        (tutorial.folder / "rows.csv").write_text("price,shop\n5,north\n5,\n")
        answers = call("run", "strategos", "predict", "rows.csv", *tutorial.sets())
        assert len(answers.splitlines()) >= 2
        code = "import strategos; print(strategos.__file__, len(strategos.history()))"
        file, runs = call("run", "python", "-c", code).split()
        call("venv", "--clear", *python)
        overrides = str(ROOT / "docs" / "overrides.txt")
        call("pip", "install", "--override", overrides, str(wheel))
        assert "✓ stack" in call("run", "--no-sync", "strategos", "doctor")
    finally:
        shutil.rmtree(tutorial.folder / ".venv", ignore_errors=True)
    assert Path(file).is_relative_to(tutorial.folder)
    assert runs == "1"


@pytest.mark.timeout(1500)  # pip looks for versions for minutes
def test_pip_installs_the_wheel(tmp_path, wheel):
    """As docs/install.md says, where there is a compiler."""
    folder = tmp_path / ".venv"
    try:
        for command in (
            (os.path.realpath(sys.executable), "-m", "venv", folder),
            (folder / "bin" / "pip", "install", "--quiet", wheel),
        ):
            subprocess.run(list(map(str, command)), check=True)
        own = ("PYTHONPATH", "TF_ENABLE_ONEDNN_OPTS", "PYTHONDONTWRITEBYTECODE")
        env = {k: v for k, v in os.environ.items() if k not in own}
        doctor = [str(folder / "bin" / "strategos"), "doctor"]
        done = subprocess.run(doctor, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "✓ stack" in done.stdout, done.stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""The modules of TFX's templates, unchanged: trained, judged, blessed and pushed."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
YAML = """
label: {label}
data: {{examples: data/*.csv}}
transform: {{module: models.preprocessing}}
trainer: {{module: {module}, epochs: 2, batch_size: 40}}
evaluator: {evaluator}
pusher: {{to: serving}}
"""
PENGUINS = {
    "body_mass_g": (3700, 3700, 5000),
    "culmen_depth_mm": (18, 18, 15),
    "culmen_length_mm": (39, 49, 47),
    "flipper_length_mm": (190, 196, 217),
}


def penguin(generator):
    """A penguin of one of three species, a column of its own."""
    species = generator.randrange(3)
    sizes = {name: mean[species] for name, mean in PENGUINS.items()}
    row = {name: generator.gauss(size, 0.03 * size) for name, size in sizes.items()}
    return {**row, "species": species}


def ride(generator):
    """A ride, with a tip of a fifth of its fare or more where it is long."""
    miles, hour = generator.uniform(0.5, 20), generator.randrange(24)
    fare = 3 + 2 * miles
    generous = generator.random() < (0.8 if miles > 8 else 0.2)
    place = {"pickup_latitude": generator.uniform(41, 42), "trip_start_hour": hour}
    tips = fare * (0.3 if generous else 0.1)
    weight = generator.choice([0, 1, 2.5])
    return {"trip_miles": miles, "fare": fare, **place, "tips": tips, "w": weight}


TEMPLATES = {
    "penguin": (
        penguin,
        {
            "label": "species_xf",
            "module": "models.model",
            "evaluator": "{task: multi_class, metrics: [accuracy], from_logits: true, "
            "bounds: {accuracy: {at_least: 0.6, better_than: trivial}}}",
        },
    ),
    "taxi": (
        ride,
        {
            "label": "tips_xf\nweight: w",
            "module": "models.keras_model.model",
            "evaluator": "{task: binary, metrics: [auc], "
            "bounds: {auc: {at_least: 0.6, better_than: trivial}}}",
        },
    ),
}


def _copy(template, target):
    """What `tfx template copy` writes to `models/`."""
    import tfx

    source = Path(tfx.__path__[0], f"experimental/templates/{template}/models")
    imports = r"from tfx\.experimental\.templates\.[^\.]+\."
    for file in source.rglob("*.py"):
        if not file.name.endswith("_test.py") and "estimator" not in file.parts[-2]:
            to = target / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(re.sub(imports, "from ", file.read_text()))


@pytest.mark.faults
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_pushed_and_serves_without_its_label(
    tmp_path, make_workspace, template
):
    make, settings = TEMPLATES[template]
    generator = random.Random(3)
    rows = [make(generator) for _ in range(1200)]
    (tmp_path / "data").mkdir()
    lines = [",".join(map(str, row.values())) for row in rows]
    (tmp_path / "data" / "a.csv").write_text("\n".join([",".join(rows[0]), *lines]))
    _copy(template, tmp_path / "models")
    (tmp_path / "__init__.py").touch()  # as `tfx template copy` writes one
    workspace = make_workspace(tmp_path)
    workspace.yaml.write_text(YAML.format(**settings))
    workspace.run()
    summary = workspace.last_run()["summary"]
    assert summary["blessed"]
    assert (summary["weighted"] is None) == (template == "penguin")
    label = {"penguin": "species", "taxi": "tips"}[template]
    names = [name for name in rows[0] if name not in (label, "w")]
    values = ",".join(str(rows[0][name]) for name in names)
    (tmp_path / "rows.csv").write_text(f"{','.join(names)}\n{values}\n")
    asked = str(workspace.yaml), str(tmp_path / "rows.csv"), "--json"
    answer = workspace.strategos("predict", *asked)
    assert len(answer.stdout.splitlines()) == 1


@pytest.mark.long
def test_the_page_on_migrating_does_what_it_says(tmp_path, make_workspace):
    """The stock tool copies the template; the page's YAML runs its modules and data."""
    text = PAGE.read_text()
    (command,) = re.findall(r"^tfx (template copy .*)$", text, re.M)
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    tool = [sys.executable, "-m", "tfx.tools.cli.cli_main", *command.split()]
    subprocess.run(tool, cwd=tmp_path, check=True, capture_output=True)
    workspace = make_workspace(tmp_path / "taxi")
    workspace.yaml.write_text(settings)
    done = workspace.run()
    summary = workspace.last_run()["summary"]
    (printed,) = re.findall(r"^  accuracy +([\d.]+) +([\d.]+)$", text, re.M)
    assert summary["blessed"]
    assert f"trivial: {printed[1]}" in done.stdout
    shown = float(re.search(r"^  accuracy +([\d.]+)", done.stdout, re.M)[1])
    assert abs(shown - float(printed[0])) < 0.02

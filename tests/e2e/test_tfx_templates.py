"""TFX's own modules, unchanged: trained, judged, blessed and pushed.

Of its templates penguin and taxi, and of its examples for IMDB's reviews and MNIST.
"""

from __future__ import annotations

import csv
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfx

PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
TFX = Path(tfx.__path__[0])
YAML = """
label: {label}
data: {{examples: data/*}}
transform: {{module: {preprocessing}}}
trainer: {{module: {model}, epochs: 2, batch_size: 40}}
evaluator: {evaluator}
pusher: {{to: serving}}
"""


def _penguins(folder: Path) -> dict:
    """Penguins of three species, which their sizes tell apart."""
    generator = random.Random(3)
    means = {
        "body_mass_g": (3700, 3700, 5000),
        "culmen_depth_mm": (18, 18, 15),
        "culmen_length_mm": (39, 49, 47),
        "flipper_length_mm": (190, 196, 217),
    }
    rows = []
    for species in (generator.randrange(3) for _ in range(1200)):
        sizes = {name: mean[species] for name, mean in means.items()}
        row = {name: generator.gauss(size, 0.03 * size) for name, size in sizes.items()}
        rows.append({**row, "species": species})
    return _write_csv(folder, rows, ["species"])


def _rides(folder: Path) -> dict:
    """Rides with a tip of a fifth of the fare or more where they are long."""
    generator = random.Random(3)
    rows = []
    for _ in range(1200):
        miles, hour = generator.uniform(0.5, 20), generator.randrange(24)
        fare = 3 + 2 * miles
        generous = generator.random() < (0.8 if miles > 8 else 0.2)
        place = {"pickup_latitude": generator.uniform(41, 42), "trip_start_hour": hour}
        tips = fare * (0.3 if generous else 0.1)
        weight = generator.choice([0, 1, 2.5])
        rows.append(
            {"trip_miles": miles, "fare": fare, **place, "tips": tips} | {"w": weight}
        )
    return _write_csv(folder, rows, ["tips", "w"])


def _write_csv(folder: Path, rows: Sequence[dict], answers: Sequence[str]) -> dict:
    """Writes the rows; the first of them as it is asked for, without the answers."""
    lines = [",".join(map(str, row.values())) for row in rows]
    (folder / "a.csv").write_text("\n".join([",".join(rows[0]), *lines]))
    return {name: value for name, value in rows[0].items() if name not in answers}


def _reviews(folder: Path) -> dict:
    """The hundred reviews that TFX ships."""
    shipped = TFX / "examples" / "imdb" / "data" / "imdb_small_with_labels.txt"
    shutil.copy(shipped, folder / "reviews.csv")
    with shipped.open(newline="") as file:
        assert next(csv.reader(file)) == ["label", "text"]
    return {"text": "a wonderful film"}


def _digits(folder: Path) -> dict:
    """scikit-learn's digits of 8 x 8 pixels, three times as large, with a border."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images / 16 - 0.5, np.ones((3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)), constant_values=-0.5)
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for image, digit in zip(images.reshape(-1, 784), digits.target, strict=True):
            example = tf.train.Example()
            features = example.features.feature
            features["image_floats"].float_list.value.extend(image)
            features["image_class"].int64_list.value.append(digit)
            writer.write(example.SerializeToString())
    return {"image_floats": images[0].ravel().tolist()}


@dataclass(frozen=True)
class Modules:
    """Modules of TFX, with data to train on.

    Attributes:
      source: Folder in TFX: of a template, or else of an example.
      make_data: Writes the data; returns a row to predict.
      settings: What the YAML of this model says.
    """

    source: str
    make_data: Callable[[Path], dict]
    settings: dict[str, str]

    def copy(self, folder: Path) -> None:
        """Copies the modules, as `tfx template copy` does."""
        if self.source.startswith("examples"):
            for file in (TFX / self.source).glob("*_utils_native_keras*.py"):
                shutil.copy(file, folder)
            return
        for file in (TFX / self.source / "models").rglob("*.py"):
            if not file.name.endswith("_test.py") and "estimator" not in file.parts[-2]:
                to = folder / file.relative_to(TFX / self.source)
                to.parent.mkdir(parents=True, exist_ok=True)
                imports = r"from tfx\.experimental\.templates\.[^\.]+\."
                to.write_text(re.sub(imports, "from ", file.read_text()))
        (folder / "__init__.py").touch()


BETTER = "bounds: {{{0}: {{at_least: {1}, better_than: trivial}}}}".format
MODULES = {
    "penguin": Modules(
        "experimental/templates/penguin",
        _penguins,
        {
            "label": "species_xf",
            "preprocessing": "models.preprocessing",
            "model": "models.model",
            "evaluator": "{task: multi_class, metrics: [accuracy], from_logits: true, "
            f"{BETTER('accuracy', 0.6)}}}",
        },
    ),
    "taxi": Modules(
        "experimental/templates/taxi",
        _rides,
        {
            "label": "tips_xf\nweight: w",
            "preprocessing": "models.preprocessing",
            "model": "models.keras_model.model",
            "evaluator": f"{{task: binary, metrics: [auc], {BETTER('auc', 0.6)}}}",
        },
    ),
    "imdb": Modules(
        "examples/imdb",
        _reviews,
        {
            "label": "label",
            "preprocessing": "imdb_utils_native_keras",
            "model": "imdb_utils_native_keras",
            # The bound of TFX's own pipeline, whose data are as few.
            "evaluator": "{task: binary, metrics: [accuracy], from_logits: true, "
            "bounds: {accuracy: {at_least: 0.01}}}",
        },
    ),
    "mnist": Modules(
        "examples/mnist",
        _digits,
        {
            "label": "image_class",
            "preprocessing": "mnist_utils_native_keras",
            "model": "mnist_utils_native_keras",
            "evaluator": "{task: multi_class, metrics: [accuracy], from_logits: true, "
            f"{BETTER('accuracy', 0.8)}}}",
        },
    ),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", MODULES)
def test_modules_of_tfx_are_pushed_by_both_runners_and_serve_without_a_label(
    tmp_path, make_workspace, name
):
    modules = MODULES[name]
    (tmp_path / "data").mkdir()
    row = modules.make_data(tmp_path / "data")
    modules.copy(tmp_path)
    workspace = make_workspace(tmp_path)
    workspace.yaml.write_text(YAML.format(**modules.settings))
    workspace.run("--runner", "local")
    by_local = workspace.last_run()["summary"]
    workspace.run("--runner", "beam", "--no-cache")
    by_beam = workspace.last_run()["summary"]
    assert by_local["blessed"] and by_beam["blessed"]
    assert (by_beam["weighted"] is None) == (name != "taxi")
    versions = [path.name for path in (tmp_path / "serving").glob("[0-9]*")]
    assert len(versions) == 2
    (tmp_path / "row.jsonl").write_text(json.dumps(row))
    asked = str(workspace.yaml), str(tmp_path / "row.jsonl"), "--json"
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

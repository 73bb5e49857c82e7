"""A package from outside of Strategos adds a plug-in of each kind, and a run uses all.

`tests/plugin_package` is built and installed as any package is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather

from strategos.components.push_targets import targets
from strategos.pipeline.config.loading import ConfigError, load
from strategos.pipeline.plan.caching import Fingerprints

PACKAGE = Path(__file__).parents[1] / "plugin_package"
ROWS = 400
SETTINGS = """
plugins: [own]
data: {examples: "data/span-{SPAN}/*.feather"}
trainer: {distribution: {launcher: noted, settings: {file: FOLDER/trained}}}
evaluator: {metrics: [auc, brier, halved], bounds: {brier: {at_most: 0.9}}}
pusher: {to: "zips://FOLDER/models"}
notify: {plugins: {ledger: {file: ledger}}}
"""

OWN = """
from pelican.brier import Brier

class Halved(Brier):
    def finish(self, sums):
        return super().finish(sums) / 2

PLUGINS = {"strategos.metrics": {"halved": Halved}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder that the package is installed in."""
    built = tmp_path_factory.mktemp("built")
    build = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    source = tmp_path_factory.mktemp("package") / "pelican"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
    command = [sys.executable, "-W", "ignore", "-c", build, str(built)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def workspace(make_small, tmp_path_factory):
    """The small workload with data in Feather files."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    for span in (1, 2):
        folder = made.folder / "data" / f"span-{span}"
        (folder / "rows.csv").unlink()
        rows = [{"x": n * 37 % 101 / 10, "late": n % 2} for n in range(ROWS)]
        feather.write_feather(pa.Table.from_pylist(rows), folder / "rows.feather")
    overlay = SETTINGS.replace("FOLDER", str(made.folder))
    (made.folder / "plugins.yaml").write_text(overlay)
    (made.folder / "own.py").write_text(OWN)
    return made


@pytest.fixture
def installed(site, monkeypatch):
    """The package in this process, too."""
    monkeypatch.syspath_prepend(site)
    yield site
    for name in [each for each in sys.modules if each.startswith("pelican")]:
        del sys.modules[name]


def _call(workspace, site, command: str, *words: str):
    overlay = ("--overlay", str(workspace.folder / "plugins.yaml"))
    return subprocess.run(
        workspace.command(command, str(workspace.yaml), *words, *overlay),
        env=workspace.cold_environment() | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.long
@pytest.mark.cold
def test_a_run_uses_a_plug_in_of_each_kind(workspace, site, installed):
    done = _call(workspace, site, "run")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "brier" in done.stdout
    assert (workspace.folder / "trained").read_text() == "model\n"
    (line,) = (workspace.folder / "ledger").read_text().splitlines()
    told = json.loads(line)
    assert (told["mark"], told["outcome"]) == ("run", "blessed")
    assert 0 < told["metrics"]["brier"] < 0.9
    assert told["metrics"]["halved"] == told["metrics"]["brier"] / 2
    target = targets.of(f"zips://{workspace.folder}/models")
    (version,) = target.versions()
    assert told["pushed"] == target.path(version)
    brier = pytest.approx(told["metrics"]["brier"], abs=1e-4)
    assert target.manifest(version)["metrics"]["brier"] == brier
    with targets.local(told["pushed"]) as folder:
        assert Path(folder, "saved_model.pb").exists()


def test_without_the_package_its_names_are_not_known(workspace):
    with pytest.raises(ConfigError) as caught:
        load(workspace.yaml, [workspace.folder / "plugins.yaml"])
    found = {each.key for each in caught.value.problems}
    assert found == {
        "plugins",
        "evaluator.metrics.2",
        "trainer.distribution.launcher",
        "evaluator.metrics.1",
        "evaluator.bounds.brier",
        "notify.plugins.ledger",
    }


def test_versions_of_what_computes_results_are_in_the_cache_keys(workspace, installed):
    config = load(workspace.yaml, [workspace.folder / "plugins.yaml"]).config
    before = Fingerprints.of(config)
    assert before.metrics.startswith("brier pelican 1.2 ")
    assert ", halved own " in before.metrics
    assert before.readers.startswith("feather pelican 1.2 ")
    source = installed / "pelican" / "brier.py"
    text = source.read_text()
    source.write_text(text.replace("error / rows", "error / rows + 1"))
    try:
        after = Fingerprints.of(config)
    finally:
        source.write_text(text)
    assert (before.readers, before.model) == (after.readers, after.model)
    assert before.metrics != after.metrics


def test_an_image_must_have_the_package(workspace, installed):
    from strategos.pipeline.plan import plugins as used

    config = load(workspace.yaml, [workspace.folder / "plugins.yaml"]).config
    note = used.note(config)
    assert note.startswith("the image must have the packages pelican 1.2 (")
    for name in ("sources feather", "metrics brier", "targets zips", "launchers noted"):
        assert f"strategos.{name}" in note

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strategos.components.user_code.fingerprint import fingerprint, members


@pytest.fixture
def write(tmp_path):
    """Writes files of a workload: `write({"model.py": "…"})`; returns its folder."""

    def write(files, folder="w"):
        for name, content in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return str(tmp_path / folder)

    return write


@pytest.fixture
def follows(write):
    """Whether the fingerprint of `model` changes with one of its workload's files."""

    def follows(files, changed, folder="w"):
        before = fingerprint(write(files), "model")
        write({changed: "ANOTHER = 1\n"}, folder)
        return fingerprint(write({}), "model") != before

    return follows


@pytest.mark.parametrize(
    "source",
    [
        "import layers",
        "from layers import A",
        "def f():\n    from layers import A",
        "import importlib\nL = importlib.import_module('layers')",
        "try:\n    import layers\nexcept ImportError:\n    layers = None",
    ],
)
def test_it_follows_the_modules_that_a_module_imports(follows, source):
    files = {"model.py": source, "layers.py": "A = 1\n", "other.py": ""}
    assert follows(files, "layers.py")
    assert not follows(files, "other.py")


def test_it_follows_declared_files_folders_and_globs(write):
    folder = write({"model.py": "", "a/b/x.bin": "1", "c.txt": "1", "d.txt": "1"})

    def changes(name, *declared):
        before = fingerprint(folder, "model", files=declared)
        write({name: f"{before}"})
        return fingerprint(folder, "model", files=declared) != before

    assert changes("a/b/x.bin", "a") and changes("c.txt", "*.txt")
    assert changes("a/b/new.bin", "a/**") and not changes("d.txt", "c.txt", "a")
    assert Path(folder, "a/b/x.bin") in members(folder, "model", ["a"])


def test_it_follows_packages_and_relative_imports(follows):
    files = {
        "model.py": "from lib.deep import x\n",
        "lib/__init__.py": "",
        "lib/deep.py": "from . import sibling\nfrom .far.away import y\nx = 1\n",
        "lib/sibling.py": "",
        "lib/far/__init__.py": "",
        "lib/far/away.py": "y = 1",
        "lib/unused.py": "",
    }
    for name in files.keys() - {"lib/unused.py"}:
        assert follows(files, name), name
    assert not follows(files, "lib/unused.py")


def test_it_follows_modules_elsewhere_on_the_import_path(
    follows, write, tmp_path, monkeypatch
):
    shared = {"common_layers/__init__.py": "", "common_layers/dense.py": "A = 1\n"}
    write(shared, "shared")
    monkeypatch.syspath_prepend(str(tmp_path / "shared"))
    files = {"model.py": "from common_layers import dense\n"}
    assert follows(files, "common_layers/dense.py", folder="shared")
    installed = "shared/lib/site-packages"
    write({"vendor_layers.py": "A = 1\n"}, installed)
    monkeypatch.syspath_prepend(str(tmp_path / installed))
    files = {"model.py": "import vendor_layers\n"}
    assert not follows(files, "vendor_layers.py", folder=installed)


def test_of_an_installed_module_the_version_of_its_package_counts(
    write, tmp_path, monkeypatch
):
    installed, info = "lib/site-packages", "vendor-1.dist-info"
    monkeypatch.syspath_prepend(str(tmp_path / installed))
    folder = write({"vendor.py": "", f"{info}/top_level.txt": "vendor\n"}, installed)

    def of(version, content=""):
        write({f"{info}/METADATA": f"Name: vendor\nVersion: {version}\n"}, installed)
        write({"vendor.py": content}, installed)
        return fingerprint(write({"model.py": ""}), "vendor")

    assert of("1") != of("2") and of("1") == of("1", "A = 1\n")
    assert fingerprint(folder, "vendor") != of("1")  # as a module of one's own


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("V = open('vocab.txt')", "vocab.txt"),
        ("from pathlib import Path\nV = Path(__file__).parent / 'a.json'", "a.json"),
        ("import os\nV = os.path.join('assets', 'words')", "assets/words"),
        ("V = tft.apply_vocabulary(x, deferred='assets/words')", "assets/words"),
    ],
)
def test_it_follows_files_that_the_code_names(follows, source, file):
    files = {"model.py": source, file: "a\nb\n", "README.md": ""}
    assert follows(files, file)
    assert not follows(files, "README.md")


def test_it_follows_files_that_an_imported_module_names_beside_itself(follows):
    code = "from pathlib import Path\nV = (Path(__file__).parent / 'v.txt')"
    files = {"model.py": "import lib.words", "lib/__init__.py": "", "lib/v.txt": "a"}
    assert follows({**files, "lib/words.py": code}, "lib/v.txt")


@pytest.mark.parametrize(
    "source",
    [
        "import os\nA = os.environ['UNITS']",
        "import os\nA = os.environ.get('UNITS', 64)",
        "import os\nA = os.getenv('UNITS')",
        "from os import environ\nA = 'UNITS' in environ",
    ],
)
def test_it_follows_variables_that_the_code_reads_where_that_is_asked_for(
    write, source
):
    folder = write({"model.py": source})
    seen = {
        fingerprint(folder, "model", environ)
        for environ in ({}, {"UNITS": "1"}, {"UNITS": "2"}, {"OTHER": "1"}, None)
    }
    assert len(seen) == 4  # unset, two values, not requested


def test_a_moved_workload_has_the_same(write, tmp_path):
    files = {"model.py": "import lib\nopen('v.txt')", "lib.py": "", "v.txt": "a"}
    before = fingerprint(write(files), "model")
    shutil.move(tmp_path / "w", tmp_path / "elsewhere")
    assert fingerprint(str(tmp_path / "elsewhere"), "model") == before


def test_source_that_cannot_be_parsed_still_counts(follows):
    assert follows({"model.py": "def broken(:\n"}, "model.py")

"""What `pip install strategos` would install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_wheel_holds_every_module_and_data_file(wheel):
    expected = {f"strategos/{name}" for name in ("__init__.py", "py.typed")}
    expected |= {
        f"strategos/{path.relative_to(ROOT)}"
        for name in ("pipeline", "components")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected


def test_installed_wheel_answers_without_the_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "from strategos.pipeline import cli; print(cli.__file__); cli.main(['--help'])"
    )
    # -S: neither the editable install nor what it maps is seen.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert "usage: strategos" in done.stdout

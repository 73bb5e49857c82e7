"""docs/walk.md, typed as it stands, in a folder without the checkout; timed."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walk.md").read_text()
BLOCKS = runpy.run_path(str(ROOT / "tests" / "test_docs.py"))["blocks"]
LONGEST = 900  # seconds, on a slow machine

pytestmark = [pytest.mark.install, pytest.mark.timeout(LONGEST + 60)]


def _script(wheel):
    """The blocks of the page, each with the seconds since the start before it."""
    typed = [*BLOCKS(ROOT / "docs" / "walk.md", "sh")]
    typed[0] = re.sub(r"path/to/\S+\.whl", str(wheel), typed[0])
    # Of this stack; UV_PYTHON would make `uv pip` install into that Python itself.
    python = os.path.realpath(sys.executable)
    typed[0] = typed[0].replace("uv venv", f"uv venv --python {python}")
    timed = [f"echo @@ $SECONDS >&2\n{block}" for block in typed]
    return "\n".join(
        ["set -euo pipefail", *timed, "wait || true; echo @@ $SECONDS >&2"]
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_walk_leads_to_a_served_model(tmp_path, wheel, capsys):
    uv = runpy.run_path(str(ROOT / "scripts" / "uv_tool.py"))["find_or_install"]
    tool = Path(uv(ROOT / ".cache"))
    (table,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "make_table.py").write_text(table)
    shutil.copy(ROOT / "docs" / "overrides.txt", tmp_path)
    own = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "UV_PYTHON")
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"PATH": f"{tool.parent}:{env['PATH']}"}
    env |= {"HOME": str(tmp_path), "UV_CACHE_DIR": _cache(tool)}
    try:
        done = subprocess.run(
            ["bash", "-c", _script(wheel)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    finally:
        shutil.rmtree(tmp_path / ".venv", ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    moments = [int(each) for each in re.findall(r"^@@ (\d+)$", done.stderr, re.M)]
    steps = re.findall(r"^## \d\. (.*)$", PAGE, re.M)
    took = {s: b - a for s, a, b in zip(steps, moments, moments[1:], strict=False)}
    with capsys.disabled():
        print(f"docs/walk.md: {took}, seconds in all: {moments[-1]}")
    assert len(moments) == len(steps) + 1
    _check_answers(done.stdout)


def _cache(tool):
    """The cache of uv: with another HOME, all packages would be downloaded again."""
    found = subprocess.run([tool, "cache", "dir"], capture_output=True, text=True)
    return found.stdout.strip()


def _check_answers(stdout):
    """What the page prints is printed; numbers of a training to a tenth."""
    (columns,) = re.findall(r"^```text\n(column .*?)^```", PAGE, re.M | re.S)
    for line in textwrap.dedent(columns).splitlines():
        assert line in stdout
    assert "verdict    blessed" in stdout
    pattern = r"predictions(?:\": \[\[)? ?(0\.\d+)"
    printed, received = (
        list(map(float, re.findall(pattern, x))) for x in (PAGE, stdout)
    )
    assert len(printed) == 4
    assert received == pytest.approx(printed, abs=0.1)

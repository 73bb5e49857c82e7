"""A clone without set-up: what editors and type checkers find in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Finds each module as the path of its package says, and prints its file. Nothing is
# imported, and with -S no installed package is seen.
PROGRAM = """
import sys
from importlib.machinery import PathFinder

for name in sys.argv[2:]:
    places = [sys.argv[1]]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places)
        places = spec.submodule_search_locations
    print(spec.origin)
"""


def test_a_clone_resolves_the_packages():
    modules = ("pipeline.cli", "components.trainer.spec")
    names = [f"strategos.{name}" for name in modules]
    command = [sys.executable, "-S", "-c", PROGRAM, str(ROOT / "src"), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [Path(line).resolve() for line in done.stdout.splitlines()]
    assert found == [ROOT / "pipeline/cli.py", ROOT / "components/trainer/spec.py"]

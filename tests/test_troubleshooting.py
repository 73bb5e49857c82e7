"""docs/troubleshooting.md quotes messages that exist, and names keys that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from strategos.pipeline.config import introspect
from strategos.pipeline.config.sections import Config

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ROWS = re.findall(r"^\| (`+) ?(.+?) ?\1 \| (.+?) \| (.+?) \|$", PAGE, re.M)


def _texts() -> Iterator[str]:
    """The texts of the code, with `…` for each part that varies."""
    for top in ("components", "pipeline"):
        for path in (ROOT / top).rglob("*.py"):
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(part.value for part in _parts(node))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def _parts(node):
    """The parts of a text, `…` for a part that varies."""
    for part in node.values:
        yield part if isinstance(part, ast.Constant) else ast.Constant("…")


@pytest.fixture(scope="module")
def texts():
    return "\n\0".join(_texts())


def test_each_row_of_the_page_is_a_message_a_cause_and_a_remedy():
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    heads = [line for line in lines if line.startswith(("| message |", "|---|"))]
    assert len(ROWS) == len(lines) - len(heads) >= 40


@pytest.mark.parametrize("message", [row[1] for row in ROWS])
def test_each_message_of_the_page_is_in_the_code(texts, message):
    assert message in texts


def test_each_key_that_a_remedy_names_exists():
    keys = {".".join(key.path) for key in introspect.keys(Config)}
    sections = {key.partition(".")[0] for key in keys}
    named = re.findall(r"`(\w+\.[\w.]+)", " ".join(row[3] for row in ROWS))
    settings = [each for each in named if each.partition(".")[0] in sections]
    assert len(settings) > 10
    assert {each for each in settings if each.rstrip(".") not in keys} == set()

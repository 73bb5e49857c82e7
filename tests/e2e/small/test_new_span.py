"""A run with a new span, beside one that reads all spans again."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long

ROWS = 250_000  # more than a MiB


def transformed(small):
    """The files of the newest transformed examples, by name."""
    folders = small.folder.glob("runs/small/Transform/transformed_examples/*")
    newest = max(folders, key=lambda folder: int(folder.name))
    files = [path for path in newest.rglob("*") if path.is_file()]
    return {str(path.relative_to(newest)): path.read_bytes() for path in files}


def analyzed(small):
    """What the newest run says of the files that it analyzes."""
    newest = max(small.folder.glob("runs/.strategos/runs/*"))
    log = (newest / "events.jsonl").read_text()
    return [line for line in log.splitlines() if "are as before" in line]


def test_a_run_with_a_new_span_analyzes_it_alone(small, write_span):
    words = ("--set", "data.spans=all", "--to", "Transform")
    for span in (3, 4):
        write_span(small.folder, span, ROWS)
    small.run(*words)
    assert analyzed(small) == []
    write_span(small.folder, 5, ROWS)
    small.run(*words)
    (line,) = analyzed(small)
    assert "analyzing 1 of 3 files; 2 are as before" in line
    found = transformed(small)
    small.run(*words, "--no-cache")
    assert analyzed(small) == []
    assert transformed(small) == found
    assert len(found) > 3

"""The event file of a run, and files that grow like it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.components import events


@given(st.lists(st.binary(max_size=12)))
def test_each_complete_line_of_a_growing_file_is_read_once(pieces):
    with tempfile.TemporaryDirectory() as folder:
        path, read = Path(folder, "log"), []
        lines = events.NewLines(path)
        assert lines.read() == []  # nobody has written yet
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
            read += lines.read()
        assert read == b"".join(pieces).split(b"\n")[:-1]


@pytest.mark.parametrize(
    "damaged", [b"{", b"[]", b'{"event": 1, "time": 1.0}', b"\xff"]
)
def test_damaged_lines_are_skipped(tmp_path, damaged):
    path = tmp_path / "events"
    events.open_sink(str(path))
    try:
        events.emit("note", message="first")
        with path.open("ab") as file:
            file.write(damaged + b"\n")
        events.emit("note", message="second")
    finally:
        events.open_sink(None)
    found = events.NewEvents(path).read()
    assert [event["message"] for event in found] == ["first", "second"]

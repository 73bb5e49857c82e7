"""The spans that a run reads: complete ones, in a window."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from strategos.components.data_files.listing import (
    Completeness,
    Listing,
    NoneCompleteError,
    select_spans,
)
from strategos.components.data_files.spans import Span
from strategos.components.errors import BadInputError


@pytest.fixture
def write(tmp_path):
    """Writes files below a folder; returns their paths."""

    def write(*names: str, age: float = 0.0) -> list[Path]:
        paths = [tmp_path / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a\n1\n")
            then = time.time() - age
            os.utime(path, (then, then))
        return paths

    return write


def _numbers(found):
    return [span.number for span in found]


@pytest.mark.parametrize(
    ("which", "numbers"),
    [
        ("all", [1, 2, 4, 7]),
        ("latest", [7]),
        ("latest 1", [7]),
        ("latest 3", [2, 4, 7]),
        ("latest 4", [1, 2, 4, 7]),
        ("2", [2]),
        ("2..5", [2, 4]),
        ("3..", [4, 7]),
    ],
)
def test_selection(which, numbers):
    found = [Span(n, None, None, ()) for n in (1, 2, 4, 7)]
    assert _numbers(select_spans(found, which)) == numbers


def test_a_span_is_left_for_training(write, tmp_path):
    write("1/a.csv", "2/a.csv")
    pattern = str(tmp_path / "{SPAN}/a.csv")
    assert _numbers(Listing(pattern, held_out=1).chosen) == [1, 2]
    with pytest.raises(
        BadInputError, match="1 span to hold out; none is left for training"
    ):
        Listing(pattern, "latest", held_out=1).chosen  # noqa: B018


@pytest.mark.parametrize(
    "which", ["3", "8..9", "5..2", "newest", "8..", "-1", "1.2", "12 3"]
)
def test_selection_of_nothing_or_in_no_known_form_is_refused(which):
    found = [Span(n, None, None, ()) for n in (1, 2, 4, 7)]
    with pytest.raises(BadInputError, match=r"^data\.spans: ") as caught:
        select_spans(found, which)
    assert which in str(caught.value)


def test_a_listing_stays_what_it_was_once_there_were_files(tmp_path):
    listing = Listing(f"{tmp_path}/{{SPAN}}.csv", "1..9")
    assert listing.is_empty
    (tmp_path / "1.csv").touch()
    assert _numbers(listing.chosen) == [1]
    (tmp_path / "2.csv").touch()
    assert _numbers(listing.chosen) == _numbers(listing.found) == [1]


def test_a_window_larger_than_the_data_says_how_many_there_are():
    found = [Span(n, None, None, ()) for n in (1, 2, 4)]
    with pytest.raises(BadInputError) as caught:
        select_spans(found, "latest 4")
    assert "received latest 4" in str(caught.value)
    assert "there are 3 spans: 1, 2, 4" in str(caught.value)


def test_a_span_without_its_marker_is_left_out(tmp_path, write):
    write("span-1/a.csv", "span-1/_SUCCESS", "span-2/a.csv", "span-3/a.csv")
    marker = f"{tmp_path}/span-{{SPAN}}/_SUCCESS"
    listing = Listing(f"{tmp_path}/span-{{SPAN}}/*.csv", "all", Completeness(marker))
    assert _numbers(listing.chosen) == [1]
    assert _numbers(listing.incomplete) == [2, 3]


def test_markers_may_be_elsewhere_and_by_another_name(tmp_path, write):
    write("in/1.csv", "in/2.csv", "done/2.ok")
    complete = Completeness(f"{tmp_path}/done/{{SPAN}}.ok")
    assert _numbers(Listing(f"{tmp_path}/in/{{SPAN}}.csv", "all", complete).found) == [
        2
    ]


@pytest.mark.parametrize(
    ("marker", "version"),
    [("{SPAN}/{VERSION}/ok", 1), ("{SPAN}/all-ok", 2)],
    ids=["of-a-version", "of-all-versions"],
)
def test_the_newest_complete_version_is_read(tmp_path, write, marker, version):
    write("7/1/a.csv", "7/1/ok", "7/2/a.csv", "7/all-ok")
    complete = Completeness(f"{tmp_path}/{marker}")
    listing = Listing(f"{tmp_path}/{{SPAN}}/{{VERSION}}/*.csv", "all", complete)
    assert [(span.number, span.version) for span in listing.found] == [(7, version)]
    waiting = [(span.number, span.version) for span in listing.incomplete]
    assert waiting == ([(7, 2)] if version == 1 else [])


def test_a_span_whose_files_still_change_is_left_out(tmp_path, write):
    write("1.csv", age=7200)
    write("2-a.csv", age=7200)
    write("2-b.csv", age=60)
    complete = Completeness(quiet=3600)
    listing = Listing(f"{tmp_path}/{{SPAN}}*.csv", "all", complete)
    assert _numbers(listing.found) == [1]
    assert _numbers(listing.incomplete) == [2]


def test_a_file_from_the_future_is_complete_once_its_marker_is_there(tmp_path, write):
    """A producer's clock is ahead, or this one was set back."""
    write("1.csv", age=-600)
    write("1.done", age=0)
    marker = f"{tmp_path}/{{SPAN}}.done"
    listing = Listing(f"{tmp_path}/{{SPAN}}.csv", "all", Completeness(marker))
    assert _numbers(listing.found) == [1]
    listing = Listing(f"{tmp_path}/{{SPAN}}.csv", "all", Completeness(marker, quiet=1))
    assert listing.incomplete and not listing.any_complete


def test_no_complete_span_is_not_missing_data(tmp_path, write):
    write("1.csv")
    listing = Listing(f"{tmp_path}/{{SPAN}}.csv", "all", Completeness(quiet=3600))
    assert not listing.is_empty
    with pytest.raises(NoneCompleteError, match=r"no span of .* is complete yet.*: 1"):
        _ = listing.chosen


def test_a_marker_without_data_is_told(tmp_path, write):
    write("span-1/a.csv", "span-1/_SUCCESS", "span-2/_SUCCESS")
    complete = Completeness(f"{tmp_path}/span-{{SPAN}}/_SUCCESS")
    listing = Listing(f"{tmp_path}/span-{{SPAN}}/*.csv", "all", complete)
    with pytest.raises(BadInputError) as caught:
        _ = listing.found
    assert "span-2/_SUCCESS marks span 2 as complete" in str(caught.value)
    assert "matches no file of that span" in str(caught.value)


def test_as_of_a_span_later_ones_have_not_arrived(tmp_path, write):
    write(*(f"{n}/{name}" for n in range(1, 6) for name in ("a.csv", "ok")))
    complete = Completeness(f"{tmp_path}/{{SPAN}}/ok")
    listing = Listing(f"{tmp_path}/{{SPAN}}/*.csv", "latest 2", complete)
    assert _numbers(listing.chosen) == [4, 5]
    assert _numbers(listing.as_of(3).chosen) == [2, 3]

"""Patterns, spans, versions and fingerprints of ExampleGen."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from strategos.components.data_files import spans
from strategos.components.errors import BadInputError, UserError
from strategos.components.example_gen import HASHES_VARIABLE


@pytest.fixture
def make(tmp_path):
    """Writes files under a folder and returns the folder."""

    def write(*names: str) -> str:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a\n1\n")
        return str(tmp_path)

    return write


def _numbers(found):
    return [span.number for span in found]


def test_plain_glob_is_one_span(make):
    root = make("b.csv", "a.csv", "notes.txt", ".hidden.csv")
    (span,) = spans.find_spans(f"{root}/*.csv")
    assert span == spans.Span(0, None, None, (f"{root}/a.csv", f"{root}/b.csv"))


def test_spans_ascend_by_number_not_by_name(make):
    root = make("span-10/a.csv", "span-9/a.csv", "span-9/b.csv", "span-x/a.csv")
    found = spans.find_spans(root + "/span-{SPAN}/*.csv")
    assert _numbers(found) == [9, 10]
    assert found[0].files == (f"{root}/span-9/a.csv", f"{root}/span-9/b.csv")


@pytest.mark.parametrize(
    ("pattern", "names", "which"),
    [
        ("s-{SPAN}.csv", ("s-01.csv", "s-1.csv"), "span 1"),
        ("{SPAN}/{VERSION}/a.csv", ("2/03/a.csv", "2/3/a.csv"), "span 2, version 3"),
    ],
)
def test_two_spans_of_the_same_number_are_refused(make, pattern, names, which):
    folder = make(*names)
    first, second = (f"{folder}/{name}" for name in names)
    said = f"both {first} and {second} are of {which}: "
    with pytest.raises(BadInputError, match=re.escape(said)):
        spans.find_editions(f"{folder}/{pattern}")


def test_width_takes_exactly_so_many_digits(make):
    root = make("s01.csv", "s2.csv", "s003.csv")
    assert _numbers(spans.find_spans(root + "/s{SPAN:2}.csv")) == [1]


@pytest.mark.parametrize("pattern", ["{DATE}.csv", "{YYYY}{MM}{DD}.csv"])
def test_span_of_a_date_is_days_since_the_epoch(make, pattern):
    root = make("20130102.csv", "19700102.csv")
    found = spans.find_spans(f"{root}/{pattern}")
    assert [(span.number, span.date) for span in found] == [
        (1, "1970-01-02"),
        (15707, "2013-01-02"),
    ]


def test_dates_in_folders(make):
    root = make("2013/01/02/a.csv", "2013/01/x2/a.csv")
    assert _numbers(spans.find_spans(root + "/{YYYY}/{MM}/{DD}/*")) == [15707]


def test_newest_version_of_each_span(make):
    root = make("1/v9/a.csv", "1/v10/a.csv", "2/v1/a.csv")
    found = spans.find_spans(root + "/{SPAN}/v{VERSION}/*.csv")
    assert [(span.number, span.version) for span in found] == [(1, 10), (2, 1)]
    assert found[0].files == (f"{root}/1/v10/a.csv",)


def test_an_older_version_can_be_resolved(make):
    root = make("1/v9/a.csv", "1/v10/a.csv", "2/v1/a.csv")
    pattern = root + "/{SPAN}/v{VERSION}/*.csv"
    resolved = spans.resolve_spans(pattern, [(1, 9), (2, None)])
    assert [(span.number, span.version) for span in resolved] == [(1, 9), (2, 1)]
    assert spans.resolve_spans(pattern, []) == spans.find_spans(pattern)
    with pytest.raises(BadInputError, match="span 3 in version 1 of .* does not exist"):
        spans.resolve_spans(pattern, [(3, 1)])


def test_recursive_glob_and_character_sets(make):
    root = make("x/y/s1-a.csv", "s1-b.csv", "s2-c.csv", "s2-[.csv")
    (one, two) = spans.find_spans(root + "/**/s{SPAN}-[!b].csv")
    assert one.files == (f"{root}/x/y/s1-a.csv",)
    assert len(two.files) == 2


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("s{SPAM}.csv", r"\{SPAM\} is not a placeholder.*\{SPAN:2\}"),
        ("s{SPAN:x}.csv", "width of {SPAN:x} is not a positive number"),
        ("{SPAN}/{SPAN}.csv", "{SPAN} occurs twice"),
        ("{YYYY}/{MM}.csv", "missing: DD"),
        ("{SPAN}/{DATE}.csv", "a span is given by"),
        ("{VERSION}.csv", "needs a span beside it"),
        ("s{SPAN.csv", "a brace without its other half"),
    ],
)
def test_malformed_pattern_is_refused(pattern, message):
    with pytest.raises(BadInputError, match=message) as caught:
        spans.find_spans(f"/data/{pattern}")
    assert pattern in str(caught.value)


def test_a_day_that_does_not_exist_names_the_file(make):
    root = make("20130231.csv")
    with pytest.raises(BadInputError, match=r"20130231\.csv: 20130231 is not a day"):
        spans.find_spans(root + "/{DATE}.csv")


@pytest.mark.parametrize("target", ["gone.csv", "b.csv"])
def test_a_link_to_nothing_is_refused_not_skipped(make, target):
    root = make("span-1/a.csv", "span-2/a.csv")
    os.symlink(target, f"{root}/span-2/b.csv")  # to a missing file, and to itself
    with pytest.raises(BadInputError, match=rf"span-2/b.csv is a link to {target}, "):
        spans.find_spans(root + "/span-{SPAN}/*.csv")
    os.symlink("nowhere", f"{root}/span-2/notes")  # no file of the data
    os.unlink(f"{root}/span-2/b.csv")
    assert _numbers(spans.find_spans(root + "/span-{SPAN}/*.csv")) == [1, 2]


def test_no_match_tells_what_lies_in_the_deepest_folder(make):
    root = make("data/span-1/a.parquet", "data/span-1/sub/x")
    with pytest.raises(BadInputError) as caught:
        spans.find_spans(root + "/data/span-{SPAN}/*.csv")
    message = str(caught.value)
    assert "span-{SPAN}/*.csv matches no file" in message
    assert f"{root}/data/span-1; in it: a.parquet, sub/" in message


def test_no_match_says_how_days_are_written(make):
    root = make("day-2026-01-31.csv")
    with pytest.raises(BadInputError, match="in it: day-2026-01-31.csv. {DATE} is a"):
        spans.find_spans(root + "/day-{DATE}.csv")
    assert _numbers(spans.find_spans(root + "/day-{YYYY}-{MM}-{DD}.csv"))


def test_no_match_shows_few_of_many_entries(make):
    root = make(*(f"{i:02}.txt" for i in range(20)))
    with pytest.raises(BadInputError, match=r"07\.txt and 12 more"):
        spans.find_spans(root + "/none/{SPAN}/*.csv")


def test_fingerprint_sees_content_name_and_span(make, tmp_path):
    root = make("1/a.csv", "2/a.csv")
    pattern = root + "/{SPAN}/*.csv"
    found = spans.find_spans(pattern)
    seen = {spans.fingerprint(found), spans.fingerprint(found[:1])}
    seen.add(spans.fingerprint(found[1:]))
    os.utime(f"{root}/1/a.csv", (1, 1))
    assert spans.fingerprint(found) in seen
    Path(f"{root}/1/a.csv").write_text("other")
    seen.add(spans.fingerprint(found))
    os.rename(f"{root}/2/a.csv", f"{root}/2/b.csv")
    seen.add(spans.fingerprint(spans.find_spans(pattern)))
    assert len(seen) == 5


def test_file_that_cannot_be_read_is_named(make, monkeypatch):
    root = make("1/a.csv")
    found = spans.find_spans(root + "/{SPAN}/*.csv")
    os.unlink(f"{root}/1/a.csv")  # as if between finding and reading
    with pytest.raises(BadInputError) as caught:
        spans.fingerprint(found)
    assert str(caught.value).startswith(
        f"data.examples: {root}/1/a.csv cannot be read: No such"
    )


def test_fingerprint_of_moved_data_is_the_same(make, tmp_path):
    root = make("here/1/a.csv", "here/1/b.csv")
    before = spans.fingerprint(spans.find_spans(root + "/here/{SPAN}/*.csv"))
    os.rename(f"{root}/here", f"{root}/there")
    after = spans.fingerprint(spans.find_spans(root + "/there/{SPAN}/*.csv"))
    assert before == after


@pytest.fixture
def planned(run, tmp_path, monkeypatch):
    """Runs ExampleGen on two files with the hash of their content at the plan."""
    monkeypatch.setenv(HASHES_VARIABLE, str(tmp_path / "file-hashes.json"))
    for span in (1, 2):
        (tmp_path / f"{span}.csv").write_text("id\n" + "1\n2\n3\n" * 9)
    pattern = str(tmp_path / "{SPAN}.csv")
    fingerprint = spans.fingerprint(spans.find_spans(pattern))
    return lambda: run(pattern, fingerprint=fingerprint)


def test_files_that_are_as_planned_are_read(planned, tmp_path):
    (tmp_path / "2.csv").touch()
    assert len(planned().rows()) == 54


def test_a_file_that_is_changed_after_the_plan_is_rejected(planned, tmp_path):
    (tmp_path / "2.csv").write_text("id\n1\n")
    with pytest.raises(UserError, match="changed after the start of the run"):
        planned()


@pytest.mark.parametrize("ending", ["rewritten", "removed"])
def test_a_file_that_is_changed_while_it_is_read_is_rejected(
    planned, tmp_path, monkeypatch, ending
):
    from strategos.components.example_gen import executor

    def later(*arguments):
        outcome = write(*arguments)
        path = tmp_path / "2.csv"
        path.touch() if ending == "rewritten" else path.unlink()
        return outcome

    write = executor._write
    monkeypatch.setattr(executor, "_write", later)
    with pytest.raises(UserError, match="2.csv"):
        planned()

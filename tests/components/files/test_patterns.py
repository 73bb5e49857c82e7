"""Patterns against Python's `glob`, by the files that each finds."""

from __future__ import annotations

import glob
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.components.files import patterns

PARTS = ("a", "b", "x1", "?", "*", "[ab]", "[!a]", "[!]x]", "{SPAN}", "{SPAN:2}")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    names = ("a", "b", "x1", "7", "12", "a1", "b12", "ab", "]")
    for parent, name in itertools.product(("", "a/", "b/12/"), names):
        path = folder / "data" / parent / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@given(
    below=st.sampled_from(["", "*/", "a/", "?/", "**/"]),
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=3),
)
def test_the_regular_expression_takes_the_files_that_glob_finds(files, below, parts):
    name = "".join(parts)
    if name.count("SPAN") > 1:
        return
    pattern = f"{files}/data/{below}{name}.csv"
    regex = patterns.to_regex(pattern)
    every = glob.glob(f"{files}/**/*.csv", recursive=True)
    found = {path for path in every if regex.fullmatch(path)}
    listed = set(glob.glob(patterns.to_glob(pattern), recursive=True))
    if "{SPAN}" in name:  # a glob has no number of any length
        assert found <= listed
    else:
        assert found == listed


def test_a_question_mark_is_one_character_and_never_a_separator(files):
    regex = patterns.to_regex(f"{files}/data/?.csv")
    taken = [
        name
        for name in ("7", "12", "", "/")
        if regex.fullmatch(f"{files}/data/{name}.csv")
    ]
    assert taken == ["7"]

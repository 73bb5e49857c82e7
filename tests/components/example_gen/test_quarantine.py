"""Rows that cannot be read are set aside with their place, whatever the cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strategos.components.data_files.sources import open_source
from strategos.components.data_files.sources.reading import Reading
from strategos.components.errors import UserError

SCHEMA = 'feature {name: "x" type: INT} feature {name: "y" type: INT presence {}}'
ROWS = 300
QUARANTINE = Reading(on_bad_row="quarantine", max_bad_fraction=0.2)


def bad(n):
    return n % 11 == 5


def write_csv(path, wrong="oops"):
    """Rows with a field too many, and, every second time, a text for a number."""
    lines = [
        f"{n},{n % 2}" if not bad(n) else [f"{n},1,1", f"{wrong},1"][n // 11 % 2]
        for n in range(ROWS)
    ]
    lines[50] += "\n"  # a blank line: no row, but a line
    path.write_text("\n".join(["x,y", *lines, ""]))


def write_json(path, wrong='"oops"'):
    lines = [
        json.dumps({"x": n, "y": n % 2})
        if not bad(n)
        else [f'{{"x": {n}', f'{{"x": {wrong}, "y": 1}}'][n // 11 % 2]
        for n in range(ROWS)
    ]
    lines[50] += "\n"
    path.write_text("\n".join([*lines, ""]))


WRITERS = {"csv": write_csv, "jsonl": write_json}


def rejected_of(written):
    folder = Path(written.artifact.uri, "Rejected")
    lines = [line for file in sorted(folder.glob("*")) for line in file.open()]
    return [json.loads(line) for line in lines]


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "s.pbtxt").write_text(SCHEMA)
    return str(tmp_path / "s.pbtxt")


@pytest.mark.parametrize("name", WRITERS)
def test_rejected_rows_are_named_and_no_other_row_is_lost(tmp_path, run, schema, name):
    path = tmp_path / f"a.{name}"
    WRITERS[name](path)
    reading = QUARANTINE.to_json()
    written = run(path, reading=reading, schema_file=schema)
    assert sorted(written.values("x")) == [[n] for n in range(ROWS) if not bad(n)]
    found = rejected_of(written)
    expected = [n for n in range(ROWS) if bad(n)]
    header = name == "csv"
    places = [f"line {n + 1 + header + (n > 50)}" for n in expected]
    assert [each["place"] for each in found] == places
    lines = path.read_text().splitlines()
    for each in found:
        assert each["file"] == str(path)
        line = lines[int(each["place"].split()[1]) - 1]
        if "oops" in line:
            assert "column `x`" in each["reason"] and "'oops'" in each["reason"]
        else:
            assert each["text"] == line
    (line,) = (line for line in written.lines() if line.startswith("rejected: "))
    assert f"{len(expected)} rows" in line and f"{path}: {places[0]}" in line
    assert written.artifact.get_int_custom_property("rows") == ROWS - len(expected)


@pytest.mark.parametrize("name", WRITERS)
def test_the_split_of_a_row_does_not_depend_on_the_cut(
    tmp_path, run, monkeypatch, schema, name
):
    from strategos.components.data_files import shards

    path = tmp_path / f"a.{name}"
    WRITERS[name](path)
    found = []
    for least in (1 << 20, 100):
        monkeypatch.setattr(shards, "_LEAST_BYTES", least)
        written = run(path, reading=QUARANTINE.to_json(), schema_file=schema)
        sides = [sorted(row["x"] for row in written.rows(s)) for s in ("train", "eval")]
        found.append((sides, rejected_of(written)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", WRITERS)
def test_without_a_schema_only_what_cannot_be_parsed_is_rejected(tmp_path, run, name):
    path = tmp_path / f"a.{name}"
    WRITERS[name](path, wrong="777")
    written = run(path, reading=QUARANTINE.to_json())
    unparsed = [n for n in range(ROWS) if bad(n) and not n // 11 % 2]
    assert len(written.rows()) == ROWS - len(unparsed)
    assert len(rejected_of(written)) == len(unparsed)


@pytest.mark.parametrize("name", WRITERS)
def test_more_than_the_bound_is_an_error_with_the_first_ten(
    tmp_path, run, schema, name
):
    path = tmp_path / f"a.{name}"
    WRITERS[name](path)
    few = Reading(on_bad_row="quarantine", max_bad_fraction=0.05).to_json()
    with pytest.raises(UserError) as caught:
        run(path, reading=few, schema_file=schema)
    message = str(caught.value)
    assert f"data.max_bad_fraction: received 0.05; 27 of {ROWS} rows" in message
    assert message.count(str(path)) == 10
    with pytest.raises(UserError):  # by default, the first one is an error
        run(path, schema_file=schema)


def test_extra_columns_are_ignored_where_that_is_asked(tmp_path, run, schema):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
    (tmp_path / "b.csv").write_text("x,z,y\n" + "3,9,0\n4,9,1\n" * 20)
    (tmp_path / "c.jsonl").write_text('{"x": 5, "y": 1, "zz": 1}\n' * 9)
    ignoring = Reading(extra_columns="ignore").to_json()
    for files, given in (("[abc].*", {"schema_file": schema}), ("*.csv", {})):
        with pytest.raises(UserError, match=r"`z`"):
            run(tmp_path / files, **given)
        rows = run(tmp_path / files, reading=ignoring, **given).rows()
        assert {frozenset(row) for row in rows} == {frozenset(["x", "y"])}
        assert len(rows) == 80 + 9 * (files == "[abc].*")


def test_a_source_that_is_tolerant_keeps_no_state_between_reads(tmp_path):
    write_csv(tmp_path / "a.csv")
    source = open_source(f"{tmp_path}/a.csv", QUARANTINE)
    for _ in range(2):
        mine = source.fresh()
        assert sum(batch.num_rows for batch in mine.batches()) == ROWS - len(
            mine.malformed
        )
    assert source.malformed is None

"""A file that is read in parts has the rows that it has as a whole."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

from strategos.components import events
from strategos.components.data_files import shards, spans
from strategos.components.data_files.sources import open_source
from strategos.components.errors import UserError
from strategos.components.shards.engine import Engine

FIELDS = (
    *("", "a", "ab", '"c"', '"d,e"', '"two\nlines"', '"cr\r\nlf"', '"say ""x"""', '""'),
    *('5" pipe', '"a"b"c', ' "', '""""', '"\n"', "ü", '"ends\n\n"', 'x"'),
)


def rows_of(source, parts):
    return [
        row for part in parts for b in source.batches(part) for row in b.to_pylist()
    ]


def cut(source, size):
    parts = source.parts(size)
    return source.cut(parts, [source.scan(part) for part in parts])


def text(seed: int) -> bytes:
    """A CSV file whose every line break, quote and comma may stand anywhere."""
    draw = random.Random(seed)
    end = draw.choice(["\n", "\r\n", "\r"])
    plain = draw.random() < 0.3
    fields = FIELDS[:3] if plain else FIELDS
    lines = ["one,two,three"]
    for _ in range(draw.randrange(1, 30)):
        lines.append(",".join(draw.choice(fields) for _ in range(3)))
        lines += [""] * (draw.random() < 0.05)
    written = end.join(lines) + end * draw.randrange(3)
    return draw.choice([b"", b"\xef\xbb\xbf"]) + written.encode()


@pytest.mark.formats
def test_csv_in_parts_of_any_size_has_the_same_rows(tmp_path):
    several = 0
    for seed in range(120):
        path = tmp_path / f"{seed}.csv"
        path.write_bytes(text(seed))
        source = open_source(str(path))
        whole = rows_of(source, [*source.parts(1 << 30)])
        for size in (1, 3, 20, 64, 300):
            parts = cut(source, size)
            assert rows_of(source, parts) == whole, (seed, size)
            several += len(parts) > 1
    assert several > 250


@pytest.mark.parametrize("size", [3, 20, 64])
def test_quote_that_nothing_closes_is_found_before_rows_are_read(tmp_path, size):
    for seed in range(40):
        path = tmp_path / f"{seed}.csv"
        path.write_bytes(text(seed).rstrip() + b'\nx,"y\n"\n1,"2\n' + b"3,4\n" * 50)
        line = len(path.read_text().splitlines()) - 50
        source = open_source(str(path))
        with pytest.raises(UserError, match=f"{seed}.csv: line {line}: a quote opens"):
            cut(source, size)


def test_rows_of_a_part_are_named_by_their_line_in_the_file(tmp_path):
    lines = ["a,b", "1,x", '2,"two', 'lines"', "", "3,y", "4,z", "5,z"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    source = open_source(str(tmp_path / "a.csv"))
    found = {}
    for part in cut(source, 4):
        for batch in source.batches(part):
            for row, values in enumerate(batch.to_pylist()):
                found[values["a"]] = source.where(part, row)
    assert len(cut(source, 4)) > 3
    assert found == {"1": "line 2", "2": "line 3", "3": "line 6", "4": "line 7"} | {
        "5": "line 8"
    }


def test_parquet_in_parts_has_the_same_rows(tmp_path):
    table = pa.table({"a": range(1000), "b": [str(i) * 9 for i in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    source = open_source(str(tmp_path / "a.parquet"))
    for size in (1, 2000, 5000, 1 << 30):
        parts = cut(source, size)
        assert rows_of(source, parts) == table.to_pylist()
    assert len(cut(source, 1)) == 15
    part = cut(source, 1)[3]
    assert source.where(part, 2) == "row 213"


@pytest.fixture
def texts(tmp_path):
    """Two files of 3,000 rows with quoted line breaks."""
    draw = random.Random(3)
    for name in ("a", "b"):
        lines = [f'{i},{i / 3},"{draw.choice("xyz")}, ""q""\n"' for i in range(3000)]
        lines[2000] = "2000,late text,z"  # the type of a column is known late
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,x,kind", *lines]))
    return tmp_path


@pytest.mark.formats
@pytest.mark.parametrize("declared", [False, True])
def test_examples_are_the_same_for_any_cut(texts, run, monkeypatch, declared):
    schema = ""
    if declared:
        kinds = {"id": "INT", "x": "BYTES", "kind": "BYTES"}
        schema = texts / "schema.pbtxt"
        features = [f'feature {{ name: "{n}" type: {k} }}' for n, k in kinds.items()]
        schema.write_text("\n".join(features))
    written = []
    for size in (1 << 20, 3_000) if declared else (1 << 20, 20_000, 3_000):
        monkeypatch.setattr(shards, "_LEAST_BYTES", size)
        monkeypatch.setattr(shards, "_MOST_BYTES", size)
        examples = run(f"{texts}/*.csv", schema_file=str(schema))
        written.append((examples.rows("train"), examples.rows("eval")))
        if not declared:
            assert "late text' (" in "".join(examples.report())
            assert "a.csv: line 4002)" in "".join(examples.report())
    assert all(rows == written[0] for rows in written[1:])
    assert sum(map(len, written[0])) == 6000


def test_files_that_one_worker_reads_alone_are_warned_of(texts, monkeypatch):
    content = (texts / "a.csv").read_bytes()
    (texts / "c.csv.gz").write_bytes(gzip.compress(content, 1))
    monkeypatch.setattr(shards, "_LARGE_BYTES", 10_000)
    monkeypatch.setattr(shards, "_LEAST_BYTES", 5_000)
    files = shards.open_files(spans.find_spans(f"{texts}/*"))
    events.open_sink(str(texts / "events"))
    try:
        shards.ShardRunner(Engine(), str(texts)).cut(f"{texts}/*", files)
    finally:
        events.open_sink(None)
    (warning,) = map(json.loads, (texts / "events").read_text().splitlines())
    assert warning["message"].startswith(f"{texts}/c.csv.gz: one worker reads")


@pytest.mark.parametrize("columns", [700, 2800])
def test_number_of_shards_grows_with_the_rows_and_not_with_wide_columns(
    tmp_path, monkeypatch, columns
):
    names = [f"c{number}" for number in range(columns)]
    lines = [",".join(names), *[",".join("1" * columns)] * 400]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    monkeypatch.setattr(shards, "_LEAST_BYTES", 64_000)
    files = shards.open_files(spans.find_spans(f"{tmp_path}/*"))
    cut = shards.ShardRunner(Engine(), str(tmp_path)).cut(f"{tmp_path}/*", files)
    assert len(cut) in (6, 7)


@pytest.mark.parametrize("end", ["csv", "parquet"])
@pytest.mark.parametrize("by", ["hash", "ratio"])
def test_a_span_keeps_its_files_when_others_come_and_go(
    tmp_path, run, monkeypatch, by, end
):
    """Later nodes use what they computed of the same files in an earlier run."""
    draw = random.Random(1)
    for span in range(5):
        rows = draw.choice([300, 900])  # less or more than a shard
        table = pa.table({"a": [draw.random() for _ in range(rows)]})
        path = tmp_path / f"{span}.{end}"
        (write_csv if end == "csv" else pq.write_table)(table, path)
    monkeypatch.setattr(shards, "_LEAST_BYTES", 8_000)
    split = {"by": by, "keys": ["a"], "train": 8, "eval": 2}

    def contents(*numbers):
        given = [[number, None] for number in numbers]
        examples = run(f"{tmp_path}/{{SPAN}}.{end}", split, spans=given)
        found = Path(examples.artifact.uri).rglob("*-of-*")
        return {path.read_bytes() for path in found}

    before, after = contents(0, 1, 2, 3), contents(1, 2, 3, 4)
    new = contents(4)
    assert after - before == new
    assert len(after) > 3 * 4


def test_data_that_grow_are_cut_in_another_way_only_when_they_double(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shards, "_LEAST_BYTES", 1_000)
    runner, found = shards.ShardRunner(Engine(), str(tmp_path)), {}
    for span in range(400):
        (tmp_path / f"{span}.csv").write_text("a\n" + "1234567\n" * 100)
        if span % 50 == 49:
            files = shards.open_files(spans.find_spans(f"{tmp_path}/{{SPAN}}.csv"))
            cut = runner.cut(f"{tmp_path}/{{SPAN}}.csv", files)
            found[span + 1] = max(len(shard.pieces) for shard in cut)
    assert found == {50: 1, 100: 1, 150: 1, 200: 2, 250: 2, 300: 2, 350: 3, 400: 3}

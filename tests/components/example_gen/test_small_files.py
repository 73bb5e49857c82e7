"""Small CSV files that are parsed together give what each of them gives alone."""

from __future__ import annotations

import random

import pytest

from strategos.components.data_files.small_files import SmallFiles
from strategos.components.data_files.sources import Reading, open_source
from strategos.components.data_files.sources.source import WHOLE
from strategos.components.data_files.sources.text import csv_source
from strategos.components.errors import UserError

FIELDS = (
    *("", "a", "ab", '"c"', '"d,e"', '"two\nlines"', '"cr\r\nlf"', '"say ""x"""', '""'),
    *('5" pipe', ' "', '""""', '"\n"', "ü", '"ends\n\n"', 'x"', " ", "\x85", "\u2028"),
)


def content(seed: int, rows: int = 30) -> bytes:
    """A CSV file; in four of ten, any field may have quotes and line breaks."""
    draw = random.Random(seed)
    end = draw.choice(["\n", "\r\n", "\r"])
    fields = FIELDS if draw.random() < 0.4 else ("", "a", "ab", "ü", " ", "\u2028")
    lines = [""] * (draw.random() < 0.1) + ["one,two,three"]
    for _ in range(draw.randrange(1, rows)):
        lines.append(",".join(draw.choice(fields) for _ in range(3)))
        lines += [""] * (draw.random() < 0.05)
    if lines[-1] in (",,", ""):
        lines.append("a,b,c")
    written = end.join(lines) + end * draw.randrange(3)
    return draw.choice([b"", b"\xef\xbb\xbf"]) + written.encode()


def opened(folder, contents):
    for number, each in enumerate(contents):
        (folder / f"{number:04}.csv").write_bytes(each)
    sources = [open_source(str(path)) for path in sorted(folder.iterdir())]
    return sources, SmallFiles(sources[0], [source.path for source in sources])


def rows_of(source):
    return [row for batch in source.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_rows_and_places_are_those_of_the_files(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    monkeypatch.setattr(
        "strategos.components.data_files.small_files._PARSED_BYTES",
        draw.choice([1, 400, 4000, 1 << 20]),
    )
    sources, together = opened(tmp_path, [content(seed * 100 + n) for n in range(40)])
    alone = [rows_of(source) for source in sources]
    expected = [row for rows in alone for row in rows]
    fresh = SmallFiles(sources[0], [source.path for source in sources])
    assert rows_of(together) == expected
    assert together.rows_of(WHOLE) == len(expected)
    places = [
        source.place(WHOLE, row)
        for source, rows in zip(sources, alone, strict=True)
        for row in range(len(rows))
    ]
    some = sorted(draw.sample(range(len(expected)), 20))
    assert together.places(WHOLE, some) == [places[row] for row in some]
    for row in some:
        assert together.place(WHOLE, row) == places[row]
        assert fresh.place(WHOLE, row) == places[row], "nothing was read before"
    first = draw.randrange(len(expected))
    count = draw.randrange(1, len(expected) - first + 1)
    found = [
        (path, row + at)
        for path, row, rows in together.stretches(first, count)
        for at in range(rows)
    ]
    wanted = [
        (s.path, at)
        for s, r in zip(sources, alone, strict=True)
        for at in range(len(r))
    ]
    assert found == wanted[first : first + count]


def test_most_of_them_are_parsed_together(tmp_path, monkeypatch):
    opened_alone = []
    read_alone = csv_source.CsvSource._open

    def noted(self, part):
        opened_alone.append(self.path)
        return read_alone(self, part)

    monkeypatch.setattr(csv_source.CsvSource, "_open", noted)
    _, together = opened(tmp_path, [content(seed) for seed in range(200)])
    assert rows_of(together)
    assert not opened_alone


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"one,two,three\n1,2,3\n4,5\n", "line 3: expected 3 fields .* Received: 2"),
        (
            b"one,two,three\n1,2,3\n\n4,\xff,6\n",
            r"is not UTF-8 text \(line 4: byte 0xff",
        ),
        (b"one,two,three\n", "has a header but no row"),
        (b'one,two,three\n1,2,"3\n4,5,6\n', "line 2: a quote opens a field"),
        (b"one,two,three\n" + b"1,2,3\n" * 900 + b"1,\0,3\n", "line 902: .*zero byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, bad, message):
    contents = [content(seed) for seed in range(20)]
    contents[13] = bad
    _, together = opened(tmp_path, contents)
    with pytest.raises(UserError, match=f"0013.csv: (.*: )?{message}"):
        rows_of(together)


def test_a_file_that_is_gone_is_named(tmp_path):
    _, together = opened(tmp_path, [content(seed) for seed in range(3)])
    (tmp_path / "0001.csv").unlink()
    with pytest.raises(UserError, match="0001.csv: cannot be opened: No such file"):
        rows_of(together)


def table(seed: int) -> str:
    draw = random.Random(seed)
    rows = [
        f"{draw.randrange(100)},{draw.choice(['x', '', '7'])},{draw.random():.3f}\n"
        for _ in range(draw.randrange(1, 40))
    ]
    return "n,t,f\n" + "".join(rows)


@pytest.mark.parametrize(
    "by",
    [
        "ratio",
        pytest.param("hash", marks=pytest.mark.formats),
        pytest.param("span", marks=pytest.mark.formats),
    ],
)
def test_examples_are_those_of_files_that_are_read_alone(tmp_path, run, by):
    for span in (1, 2, 3):
        (tmp_path / f"{span}").mkdir()
        for seed in range(30):
            (tmp_path / f"{span}" / f"{seed}.csv").write_text(table(100 * span + seed))
    split = {"by": by, "keys": ["n", "t"], "train": 8, "eval": 2, "spans": 1}
    common = {
        "pattern": tmp_path / "{SPAN}" / "*.csv",
        "split": split,
        "spans": [[each, None] for each in (1, 2, 3)],
    }
    alone = Reading(on_bad_row="quarantine", max_bad_fraction=0.0).to_json()
    together, separate = run(**common), run(**common, reading=alone)
    for name in ("train", "eval"):
        assert together.features(name) == separate.features(name) != []
    assert together.lines() == separate.lines()


def test_a_value_of_another_type_is_named_by_its_file(tmp_path, run):
    for seed in range(30):
        (tmp_path / f"{seed:02}.csv").write_text(table(seed))
    (tmp_path / "17.csv").write_text("n,t,f\n3,x,0.5\nmany,x,0.5\n4,,0.1\n")
    (line,) = [x for x in run(tmp_path / "*.csv").lines() if "`n` is BYTES" in x]
    assert f"'many' ({tmp_path}/17.csv: line 3)" in line
    schema = tmp_path / "schema.pbtxt"
    types = {"n": "INT", "t": "BYTES", "f": "FLOAT"}
    schema.write_text(
        "".join(f'feature {{ name: "{n}" type: {t} }}\n' for n, t in types.items())
    )
    with pytest.raises(UserError, match=r"17.csv: line 3: .*'many'"):
        run(tmp_path / "*.csv", schema_file=str(schema))

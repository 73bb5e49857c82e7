"""CSV files of other programs: delimiters, quotes, decimal marks, encodings, codecs."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random

import pyarrow as pa
import pytest

from strategos.components.data_files import sources
from strategos.components.data_files.sources.reading import CsvFormat, Reading
from strategos.components.errors import UserError

ROWS = [
    {"n": n, "f": n / 4, "s": f"ü;{n},\t|\n'x'" if n % 3 else "a", "y": n % 2}
    for n in range(60)
]


def text_of(form: CsvFormat) -> str:
    file = io.StringIO(newline="")
    quoting = {"quotechar": form.quote}
    writer = csv.writer(file, delimiter=form.delimiter, lineterminator="\n", **quoting)
    writer.writerow(ROWS[0])
    for row in ROWS:
        f = str(row["f"]).replace(".", form.decimal)
        writer.writerow([row["n"], f, row["s"], row["y"]])
    return file.getvalue()


FORMS = {
    "excel": CsvFormat(";", decimal=",", encoding="windows-1252"),
    "tabs": CsvFormat("\t", quote="'"),
    "wide": CsvFormat("|", encoding="utf-16"),
    "decimal": CsvFormat(",", decimal=","),
}


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


CODECS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


def rows_of(written) -> list[str]:
    return sorted(json.dumps(row, default=repr, sort_keys=True) for row in written)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("plain") / "a.csv"
    path.write_text(text_of(CsvFormat()))
    return rows_of(run(path).features())


@pytest.mark.parametrize("end", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("name", ["excel"])
def test_compressed_files_of_another_form(tmp_path, run, plain, end, name):
    check(tmp_path, run, plain, end, FORMS[name])


@pytest.mark.parametrize("name", FORMS)
def test_files_of_another_form_have_the_same_rows(tmp_path, run, plain, name):
    check(tmp_path, run, plain, "", FORMS[name])


def check(folder, run, plain, end, form):
    path = folder / f"a.csv{end}"
    path.write_bytes(CODECS[end](text_of(form).encode(form.encoding)))
    reading = Reading(csv=form)
    assert Reading.from_json(reading.to_json()) == reading
    assert rows_of(run(path, reading=reading.to_json()).features()) == plain
    copy = folder / f"copy.csv{end}"
    source = sources.open_source(str(path), reading)
    source.copy_first(7, str(copy))
    copied = sources.open_source(str(copy), reading).batches()
    numbers = [n for batch in copied for n in batch.column(0).to_pylist()]
    assert numbers == [str(row["n"]) for row in ROWS[:7]]
    assert source.where(sources.Part(), 2) == "line 5"  # the row before has two lines


def test_spellings_of_missing_text(tmp_path, run):
    (tmp_path / "a.csv").write_text("s,x,y\n" + "\\N,NA,1\na,\\N,0\nNA,5,1\n" * 9)
    reading = Reading(csv=CsvFormat(nulls=("\\N",))).to_json()
    written = run(tmp_path / "a.csv", reading=reading, null_values=["NA"])
    by_row = sorted(
        map(str, zip(written.values("s"), written.values("x"), strict=True))
    )
    assert by_row[::9] == ["([], [])", "([b'NA'], [5])", "([b'a'], [])"]


def test_a_point_is_no_decimal_mark_beside_a_decimal_comma(tmp_path, run):
    (tmp_path / "a.csv").write_text("f;y\n1,5;0\n1.234;1\n" + "1,5;0\n" * 30)
    reading = Reading(csv=CsvFormat(";", decimal=",")).to_json()
    written = run(tmp_path / "a.csv", reading=reading)
    assert sorted(written.values("f"))[-2:] == [[b"1,5"], [b"1.234"]]
    assert any("'1.234'" in line for line in written.report())
    schema = tmp_path / "s.pbtxt"
    schema.write_text('feature {name: "f" type: FLOAT} feature {name: "y" type: INT}')
    with pytest.raises(UserError, match=r"line 3: column `f`.*'1.234'"):
        run(tmp_path / "a.csv", reading=reading, schema_file=str(schema))


def test_keys_of_a_split_do_not_depend_on_the_decimal_mark(tmp_path, run):
    split = {"by": "hash", "keys": ["f"], "train": 5, "eval": 5}
    sides = []
    for mark, form in ((".", CsvFormat(";")), (",", CsvFormat(";", decimal=","))):
        path = tmp_path / f"{ord(mark)}.csv"
        lines = [f"{n / 4};{n % 2}".replace(".", mark) for n in range(80)]
        path.write_text("f;y\n" + "\n".join(lines) + "\n")
        written = run(path, split=split, reading=Reading(csv=form).to_json())
        sides.append([rows_of(written.features(name)) for name in ("train", "eval")])
    assert sides[0] == sides[1]


@pytest.mark.formats
@pytest.mark.parametrize("form", [CsvFormat("|", "'"), CsvFormat(";", "")])
def test_parts_of_any_size_have_the_same_rows(tmp_path, form):
    fields = ["", "a", "'b'", "'c|;d'", "'two\nlines'", "'say ''x'''", 'x"', '"', "ü"]
    if not form.quote:
        fields = [each.replace("\n", " ").replace(";", "") for each in fields]
    for seed in range(30):
        draw = random.Random(seed)
        lines = [form.delimiter.join(["one", "two"])]
        pairs = (draw.choices(fields, k=2) for _ in range(25))
        lines += map(form.delimiter.join, pairs)
        path = tmp_path / f"{seed}.csv"
        path.write_bytes("\n".join([*lines, ""]).encode("iso-8859-15"))
        reading = Reading(
            csv=CsvFormat(form.delimiter, form.quote, encoding="iso-8859-15")
        )
        source = sources.open_source(str(path), reading)
        whole = [r for b in source.batches() for r in b.to_pylist()]
        for size in (1, 20, 90):
            parts = source.parts(size)
            parts = source.cut(parts, [source.scan(part) for part in parts])
            cut = [r for p in parts for b in source.batches(p) for r in b.to_pylist()]
            assert cut == whole


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        (b"a,b\n1,2\n", CsvFormat(";"), "separated by ';', not by ','"),
        (
            b"a;b\n1;\x81\n",
            CsvFormat(";", encoding="cp1252"),
            "not CP1252 text .line 2",
        ),
        (b"a;b\n1;2;3\n", CsvFormat(";"), "line 2: expected 2 fields"),
        ("a;b\n1;2\n".encode("utf-16"), CsvFormat(";"), "encoding: utf-16"),
    ],
)
def test_what_contradicts_the_settings_is_named(tmp_path, content, form, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        source = sources.open_source(f"{tmp_path}/a.csv", Reading(csv=form))
        list(source.batches())


@pytest.mark.parametrize("end", [".bz2", ".zst"])
def test_a_compressed_file_that_is_cut_off(tmp_path, end):
    noise = "".join(f"{random.Random(n).random()},1\n" for n in range(9999))
    content = CODECS[end](b"a,b\n" + noise.encode())
    for cut in (-3, len(content) // 2, 9):
        (tmp_path / f"a.csv{end}").write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"Truncated.*cut off or damaged|is empty"):
            list(sources.open_source(f"{tmp_path}/a.csv{end}").batches())

"""ORC, Avro and structs: the values are those of the same table in Parquet."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files import sources
from strategos.components.data_files.sources.source import WHOLE, Part
from strategos.components.errors import UserError

ROWS = 90
NOON = datetime.datetime(2024, 3, 1, 12, 0, 0, 250000)


def gap(n, value):
    return None if n % 7 == 3 else value


def table() -> pa.Table:
    numbers = range(ROWS)
    places = [gap(n, {"city": f"ü{n % 4}", "at": gap(n + 1, n / 8)}) for n in numbers]
    place = pa.struct([("city", pa.string()), ("at", pa.float64())])
    return pa.table(
        {
            "id": pa.array([2**40 + n for n in numbers], pa.int64()),
            "small": pa.array([gap(n, n) for n in numbers], pa.int32()),
            "share": pa.array([gap(n, n / 3) for n in numbers], pa.float32()),
            "wide": pa.array([gap(n, n / 3) for n in numbers], pa.float64()),
            "flag": pa.array([gap(n, n % 2 == 0) for n in numbers]),
            "text": pa.array([gap(n, f"a,\n{n}") for n in numbers]),
            "raw": pa.array([gap(n, bytes([n, 255])) for n in numbers], pa.binary()),
            "lists": pa.array([gap(n, list(range(n % 3))) for n in numbers]),
            "words": pa.array([gap(n, ["a"] * (n % 3)) for n in numbers]),
            "day": pa.array([gap(n, NOON.date()) for n in numbers]),
            "price": pa.array([gap(n, decimal.Decimal(n) / 4) for n in numbers]),
            "place": pa.array(places, place),
            "y": pa.array([n % 2 for n in numbers]),
        }
    )


AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "share", "type": ["null", "float"]},
        {"name": "wide", "type": ["null", "long", "double"]},
        {"name": "flag", "type": ["boolean", "null"]},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "lists", "type": ["null", {"type": "array", "items": "long"}]},
        {"name": "words", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            ],
        },
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "city", "type": "string"},
                        {"name": "at", "type": ["null", "double"]},
                    ],
                },
            ],
        },
        {"name": "y", "type": "long"},
    ],
}


def write_parquet(path, rows):
    pq.write_table(rows, path, row_group_size=40)


def write_orc(path, rows):
    small = {"stripe_size": 1024, "batch_size": 100, "compression_block_size": 1024}
    po.write_table(rows, path, compression="zstd", **small)


def write_avro(path, rows, codec="deflate"):
    with open(path, "wb") as file:
        records = rows.to_pylist()
        fastavro.writer(file, AVRO, records, codec=codec, sync_interval=2000)


WRITERS = {"parquet": write_parquet, "orc": write_orc, "avro": write_avro}


def multiset(written):
    return sorted(json.dumps(row, default=repr, sort_keys=True) for row in written)


@pytest.fixture(scope="module")
def examples(tmp_path_factory, run):
    """The rows of the table's examples, by format."""
    folder = tmp_path_factory.mktemp("columnar")
    by_format = {}
    for name, write in WRITERS.items():
        write(folder / f"a.{name}", table())
        by_format[name] = run(folder / f"a.{name}").features()
    return by_format


@pytest.mark.parametrize("name", ["orc", "avro"])
def test_a_format_gives_the_examples_that_parquet_gives(examples, name):
    assert len(examples[name]) == ROWS
    assert multiset(examples[name]) == multiset(examples["parquet"])


def test_a_struct_is_columns_by_dotted_name(examples):
    by_id = {row["id"][1][0] - 2**40: row for row in examples["parquet"]}
    assert "place" not in by_id[0]
    for n, row in by_id.items():
        city = gap(n, [f"ü{n % 4}".encode()]) or []
        at = [] if gap(n, 0) is None or gap(n + 1, 0) is None else [n / 8]
        assert (row["place.city"][1], row["place.at"][1]) == (city, at)


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_parts_of_any_size_hold_each_row_once(tmp_path, name):
    path = tmp_path / f"a.{name}"
    WRITERS[name](path, pa.concat_tables([table()] * 40))
    source = sources.open_source(str(path))
    all_rows = read(source, [WHOLE])
    assert len(all_rows) == 40 * ROWS == source.rows_of(WHOLE)
    parts = source.parts(1)
    assert read(source, parts) == all_rows
    assert sum(map(source.rows_of, parts)) == 40 * ROWS
    last = parts[-1]
    assert source.where(last, source.rows_of(last) - 1).endswith(f" {40 * ROWS}")
    if name != "avro":
        assert len(parts) > 1
        names = ["place.at", "id"]
        some = [b for part in parts for b in source.unseen(part, names)]
        assert pa.Table.from_batches(some).schema.names == names
        assert pa.Table.from_batches(some)["id"].to_pylist() == [
            row["id"] for row in all_rows
        ]


@pytest.mark.formats
def test_images_come_in_batches_that_fit_in_memory(tmp_path):
    pixels = pa.array(
        [[each % 256] * 12_288 for each in range(500)], pa.list_(pa.uint8())
    )
    pq.write_table(pa.table({"image": pixels}), tmp_path / "a.parquet")
    source = sources.open_source(str(tmp_path / "a.parquet"))
    batches = list(source.batches())
    assert max(len(each["image"].flatten()) for each in batches) <= 1 << 21
    found = [row[0] for each in batches for row in each["image"].to_pylist()]
    assert found == [each % 256 for each in range(500)]


def read(source, parts: list[Part]):
    return [
        row for part in parts for b in source.batches(part) for row in b.to_pylist()
    ]


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_the_first_rows_are_copied(tmp_path, name):
    path, copy = tmp_path / f"a.{name}", str(tmp_path / f"copy.{name}")
    WRITERS[name](path, table())
    sources.open_source(str(path)).copy_first(7, copy)
    expected = read(sources.open_source(str(path)), [WHOLE])[:7]
    assert read(sources.open_source(copy), [WHOLE]) == expected


@pytest.mark.parametrize("codec", ["null", "bzip2", "xz"])
def test_codecs_of_avro(tmp_path, codec):
    write_avro(tmp_path / "a.avro", table(), codec)
    source = sources.open_source(f"{tmp_path}/a.avro")
    assert len(read(source, [WHOLE])) == ROWS


def test_a_codec_without_its_package_is_named(tmp_path):
    write_avro(tmp_path / "a.avro", table(), "null")
    content = (tmp_path / "a.avro").read_bytes()
    other = content.replace(b"avro.codec\x08null", b"avro.codec\x0csnappy")
    (tmp_path / "a.avro").write_bytes(other)
    with pytest.raises(UserError, match="cramjam.*write the file with the codec"):
        list(sources.open_source(f"{tmp_path}/a.avro").batches())


def test_times_and_uuids_of_avro(tmp_path):
    def logical(kind, name):
        return {"name": name, "type": {"type": kind, "logicalType": name}}

    pairs = [
        ("int", "time-millis"),
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "local-timestamp-micros"),
        ("string", "uuid"),
    ]
    fields = [logical(*pair) for pair in pairs]
    fields.append(
        {"name": "list", "type": {"type": "array", "items": fields[-1]["type"]}}
    )
    names = ["time-millis", "timestamp-millis", "timestamp-micros"]
    key = uuid.UUID(int=7)
    row = dict(zip(names, [NOON.time(), NOON, NOON], strict=True))
    row = {
        k: v.replace(tzinfo=datetime.timezone.utc) if k[:5] == "times" else v
        for k, v in row.items()
    }
    row |= {"local-timestamp-micros": NOON, "uuid": key, "list": [key, key]}
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, [row])
    source = sources.open_source(f"{tmp_path}/a.avro")
    ((read_row,),) = ([*b.to_pylist()] for b in source.batches())
    assert read_row["uuid"] == str(key) and read_row["list"] == [str(key)] * 2
    assert read_row["time-millis"] == NOON.time()
    for name, type_ in source.types.items():
        if "timestamp" in name:
            assert (type_.tz == "UTC") == (name[:5] != "local")
            assert str(read_row[name]).startswith("2024-03-01 12:00:00.25")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ({"type": "map", "values": "int"}, "`x` has the Avro type map"),
        (["int", "string"], "`x` has the Avro type union of int, string"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, "`x` has the"),
    ],
)
def test_a_type_without_a_meaning_is_named(tmp_path, kind, named):
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, schema, [])
    with pytest.raises(UserError, match=named):
        sources.open_source(f"{tmp_path}/a.avro")


@pytest.mark.parametrize("name", ["orc", "avro"])
def test_a_file_without_rows_or_of_another_format_is_named(tmp_path, name):
    path = tmp_path / f"a.{name}"
    WRITERS[name](path, table().slice(0, 0))
    with pytest.raises(UserError, match="has no row"):
        list(sources.open_source(str(path)).batches())
    for content, cause in ((b"x,y\n1,2\n", "it is text"), (b"", "it is empty")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"a.{name}: cannot be read as .*: {cause}"):
            sources.open_source(str(path))


@pytest.mark.parametrize("name", ["orc", "avro"])
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_a_damaged_file_is_an_error_or_whole(tmp_path_factory, name, data):
    """A file that is cut off is an error; Avro has no end, so not between blocks."""
    path = tmp_path_factory.getbasetemp() / f"damaged.{name}"
    WRITERS[name](path, table().slice(0, 40))
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    try:
        source = sources.open_source(str(path))
        rows = read(source, [WHOLE])
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert name == "avro"
        path.write_bytes(content)
        assert rows == read(sources.open_source(str(path)), [WHOLE])[: len(rows)]
        assert len(rows) < 40


def test_numbers_that_float32_changes_are_watched_in_structs(tmp_path, run):
    ids = pa.array([{"id": float(2**24 + n)} for n in range(40)])
    pq.write_table(
        pa.table({"of": ids, "y": np.arange(40) % 2}), tmp_path / "a.parquet"
    )
    values = sorted(run(tmp_path / "a.parquet").values("of.id"))
    assert values == [[2**24 + n] for n in range(40)]

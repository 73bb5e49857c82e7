"""JSON lines and tf.Examples: the values are those of the same table in Parquet."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files import sources
from strategos.components.data_files.sources.source import WHOLE
from strategos.components.errors import UserError

ROWS = [
    {
        "id": 2**60 + n,
        "small": n if n % 7 else None,
        "share": n / 8 if n % 5 else None,
        "text": f"ü,\n{n}" if n % 4 else None,
        "day": "2024-03-01" if n % 2 else "2024-03-01T10:00:00Z",
        "flag": n % 3 == 0,
        "lists": list(range(n % 3)),
        "words": ["2024-01-01", "b"][: n % 3],
        "place": {"city": f"c{n % 4}", "at": n / 4} if n % 6 else None,
        "late": "seen" if n == 77 else None,
        "y": n % 2,
    }
    for n in range(80)
]


def without_nulls(row):
    return {k: v for k, v in row.items() if v is not None}


def json_lines(rows) -> bytes:
    every = (row if n % 2 else without_nulls(row) for n, row in enumerate(rows))
    return "".join(json.dumps(row) + "\n" for row in every).encode()


def examples_of(rows):
    import tensorflow as tf

    lists = {int: "int64_list", float: "float_list", bytes: "bytes_list"}
    for row in rows:
        example = tf.train.Example()
        for name, value in row.items():
            feature = example.features.feature[name]
            if value == []:
                empty = feature.int64_list if name == "lists" else feature.bytes_list
                empty.SetInParent()
            for each in value if isinstance(value, list) else [value]:
                each = each.encode() if isinstance(each, str) else each
                kind = lists[int if isinstance(each, bool) else type(each)]
                getattr(feature, kind).value.append(each)
        yield example.SerializeToString()


def write_examples(path, records, options=None):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), options) as file:
        for record in records:
            file.write(record)


def flat(row):
    place = row.pop("place") or {}
    return row | {f"place.{name}": value for name, value in place.items()}


def rows_of(written):
    return sorted(json.dumps(row, default=repr, sort_keys=True) for row in written)


@pytest.fixture(scope="module")
def expected(tmp_path_factory, run):
    """The examples of the table in Parquet."""
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return rows_of(run(path).features())


@pytest.mark.parametrize("end", ["jsonl", "json.gz", "ndjson.bz2", "jsonl.zst"])
def test_json_lines_give_the_examples_that_parquet_gives(tmp_path, run, expected, end):
    path = tmp_path / f"a.{end}"
    packed = {"gz": gzip.compress, "bz2": bz2.compress}.get(path.suffix[1:], bytes)
    path.write_bytes(packed(json_lines(ROWS)))
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(json_lines(ROWS))
    assert rows_of(run(path).features()) == expected


@pytest.mark.parametrize(
    "name",
    ["a.tfrecord", "data_tfrecord-00000-of-00001.gz", "b.tfrecord-00000-of-00001"],
)
def test_tf_examples_give_the_examples_that_parquet_gives(
    tmp_path, run, expected, name
):
    rows = [without_nulls(flat(dict(row))) for row in ROWS]
    options = "GZIP" if name.endswith("gz") else None
    write_examples(tmp_path / name, examples_of(rows), options)
    assert rows_of(run(tmp_path / name).features()) == expected
    copy = tmp_path / f"copy_{name}"
    sources.open_source(str(tmp_path / name)).copy_first(5, str(copy))
    copied = values(sources.open_source(str(copy)), [WHOLE])
    assert [row["id"] for row in copied] == [row["id"] for row in rows[:5]]


def test_examples_that_this_component_wrote_are_read(tmp_path, run, expected):
    (tmp_path / "a.jsonl").write_bytes(json_lines(ROWS))
    written = run(tmp_path / "a.jsonl")
    again = run(f"{written.artifact.uri}/Split-*/*.gz")
    assert rows_of(again.features()) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_json_in_parts_of_any_size_has_the_same_rows(tmp_path, end):
    lines = json_lines(ROWS).decode().splitlines()
    content = "\ufeff" + end.join(lines) + end * random.Random(1).randrange(2)
    (tmp_path / "a.jsonl").write_bytes(content.encode())
    source = sources.open_source(f"{tmp_path}/a.jsonl")
    whole = list(values(source, [WHOLE]))
    assert [row["id"] for row in whole] == [row["id"] for row in ROWS]
    numbers = [n for n, text in enumerate(content.splitlines(), 1) if text.strip()]
    for size in (1, 30, 200, 3000):
        parts = source.parts(size)
        assert list(values(source, parts)) == whole
        found = [
            source.where(part, row)
            for part in parts[::7]
            for row in range(source.rows_of(part))
        ]
        assert set(found) <= {f"line {n}" for n in numbers}
        if len(parts) < 7:
            assert found == [f"line {n}" for n in numbers[: len(found)]]


def values(source, parts):
    for part in parts:
        for batch in source.batches(part):
            yield from map(without_nulls, batch.to_pylist())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"x": 1}', '{"x": "a"}'],
            "`x` has values of several types: a number, '1'",
        ),
        (['{"x": 1}', '{"x": true}'], "column `x` has values of several types"),
        (['{"x": 1}', '{"x": 1'], "line 2: is not a JSON object: Expecting ',' delim"),
        (['{"x": 1}', "[1]"], "line 2: is list, not an object"),
        (['{"x": 1}{"x": 2}'], "line 1: is not a JSON object: Extra data"),
        (["{", '"x": 1', "}"], "line 1: is not a JSON object"),
        (
            ['{"x": 1, "x": 2}'],
            "line 1: is not a JSON object: the key `x` ",
        ),
        (
            ['{"x": 12345678901234567890}'],
            "line 1: `x` has a whole number beyond",
        ),
        (['{"x": [1, "a"]}'], "line 1: has a number beyond double, a list of several"),
        (['{"x": [[1]]}'], "column `x` has the type list<item: list"),
        (['{"x": [{"y": 1}]}'], "column `x` has the type list<item: struct"),
        (['[{"x": 1},', '{"x": 2}]'], "is one JSON array. Write each row"),
        (["{}", "{}"], "has no column"),
        ([" "], "has no row"),
    ],
)
def test_json_without_a_meaning_is_named(tmp_path, run, lines, message):
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        run(tmp_path / "a.jsonl")
    assert message in str(caught.value)


def test_numbers_keep_all_digits_in_any_company(tmp_path, run):
    wide = [2**53 + 1, 2**62 + 1]
    rows = [{"id": wide[0], "y": 0}, {"id": 5.0, "y": 1}, {"id": wide[1], "y": 0}]
    lines = "".join(json.dumps(row) + "\n" for row in rows * 20)
    (tmp_path / "a.jsonl").write_text(lines)
    found = {value for (value,) in run(tmp_path / "a.jsonl").values("id")}
    assert found == {5, *wide}


def test_a_schema_declares_the_types_of_json(tmp_path, run):
    schema = tmp_path / "s.pbtxt"
    schema.write_text(
        'feature {name: "x" type: BYTES} feature {name: "y" type: INT} '
        'feature {name: "z" type: FLOAT}'
    )
    rows = [{"x": 1, "y": 0, "z": [1, 2.5]}, {"x": "a", "y": 1}, {"y": 0, "x": None}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows * 20))
    written = run(tmp_path / "a.jsonl", schema_file=str(schema))
    assert sorted(written.values("x"))[::20] == [[], [b"1"], [b"a"]]
    assert sorted(written.values("z"))[::20] == [[], [], [1.0, 2.5]]
    with open(tmp_path / "a.jsonl", "a") as file:
        file.write('{"x": "a", "y": 1, "zz": 1}\n')
    with pytest.raises(UserError, match="column `zz` is not in the schema"):
        run(tmp_path / "a.jsonl", schema_file=str(schema))


def test_keys_of_a_split_may_be_missing(tmp_path, run):
    split = {"by": "hash", "keys": ["k"], "train": 5, "eval": 5}
    rows = [{"k": n} if n % 2 else {"y": n} for n in range(80)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    types = pa.schema([("k", pa.int64()), ("y", pa.int64())])
    pq.write_table(pa.Table.from_pylist(rows, types), tmp_path / "a.parquet")
    sides = []
    for name in ("a.jsonl", "a.parquet"):
        written = run(tmp_path / name, split=split)
        sides.append([rows_of(written.features(side)) for side in ("train", "eval")])
    assert sides[0] == sides[1]


def sequence_of(row, lists):
    """A SequenceExample: `lists` in steps of one value, the others in the context."""
    import tensorflow as tf

    example = tf.train.Example.FromString(next(examples_of([row])))
    sequence = tf.train.SequenceExample()
    for name, feature in example.features.feature.items():
        if name not in lists:
            sequence.context.feature[name].CopyFrom(feature)
            continue
        kind = feature.WhichOneof("kind")
        steps = sequence.feature_lists.feature_list[name]
        for value in getattr(feature, kind).value:
            getattr(steps.feature.add(), kind).value.append(value)
    return sequence.SerializeToString()


def test_lists_of_sequence_examples_are_those_of_parquet(tmp_path, run, expected):
    rows = [without_nulls(flat(dict(row))) for row in ROWS]
    records = [sequence_of(row, ("lists", "words")) for row in rows]
    write_examples(tmp_path / "a.tfrecord", records)
    assert rows_of(run(tmp_path / "a.tfrecord").features()) == expected
    lists = ("l", "m")  # without any context
    some = [sequence_of({"l": [1, 2], "m": [n]}, lists) for n in range(2)]
    write_examples(tmp_path / "b.tfrecord", some)
    (batch,) = sources.open_source(f"{tmp_path}/b.tfrecord").batches()
    assert batch.to_pylist() == [{"l": [1, 2], "m": n} for n in range(2)]


@pytest.mark.parametrize("steps", [([1, 2],), ([1], [])])
def test_a_step_without_one_value_is_rejected_by_its_record(tmp_path, steps):
    import tensorflow as tf

    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    for values in steps:
        feature = sequence.feature_lists.feature_list["l"].feature.add()
        feature.int64_list.value.extend(values)
    good = sequence_of({"a": 1, "l": [1, 2]}, ("l",))
    records = [good, sequence.SerializeToString(), good]
    write_examples(tmp_path / "a.tfrecord", records)
    with pytest.raises(UserError, match="record 2: .* not one value at each step"):
        list(sources.open_source(f"{tmp_path}/a.tfrecord").batches())


KINDS = [
    ("int64_list", int, "int64"),
    ("float_list", float, "float32"),
    ("bytes_list", lambda value: b"%d" % value, "string"),
]
STEPS = st.none() | st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=4)


@settings(max_examples=60, deadline=None, database=None)
@given(rows=st.lists(STEPS, min_size=1, max_size=6), kind=st.sampled_from(KINDS))
def test_steps_of_several_values_are_those_of_tensorflow(tmp_path_factory, rows, kind):
    """The values of all steps, and their number at each step."""
    import tensorflow as tf

    field, convert, dtype = kind
    records = []
    for number, steps in enumerate(rows):
        sequence = tf.train.SequenceExample()
        sequence.context.feature["id"].int64_list.value.append(number)
        if steps is not None:
            made = sequence.feature_lists.feature_list["clicks"]
            for values in steps:
                feature = getattr(made.feature.add(), field)
                feature.value.extend(map(convert, values))
        records.append(sequence.SerializeToString())
    path = tmp_path_factory.getbasetemp() / "steps.tfrecord"
    write_examples(path, records)
    reading = sources.Reading(step_lengths=("clicks", "other"))
    source = sources.open_source(str(path), reading)
    found = [row for batch in source.batches() for row in batch.to_pylist()]
    ragged = tf.io.RaggedFeature(tf.as_dtype(dtype))
    _, expected, _ = tf.io.parse_sequence_example(
        records, sequence_features={"clicks": ragged}
    )
    for row, steps in zip(found, expected["clicks"].to_list(), strict=True):
        lengths = listed(row.get("clicks_lengths"))
        values = iter(listed(row.get("clicks")))
        assert [[next(values) for _ in range(n)] for n in lengths] == steps
        assert list(values) == []


NESTED = """
feature { name: "clicks" type: FLOAT }
feature { name: "clicks_lengths" type: INT }
feature { name: "id" type: INT }
tensor_representation_group { key: "" value {
  tensor_representation { key: "nested" value { ragged_tensor {
    feature_path { step: "clicks" } partition { row_length: "clicks_lengths" } } } }
} }
"""


@pytest.mark.parametrize("kind", ["Columns", "Split"])
def test_transform_gets_steps_of_several_values_as_ragged_tensors(tmp_path, run, kind):
    import tensorflow as tf

    from strategos.components.schema_file import read_schema
    from strategos.components.transform import raw

    rows = [[[1.5], [2, 3], []], None, [[]], [[4]], []]
    records = []
    for number, steps in enumerate(rows):
        sequence = tf.train.SequenceExample()
        sequence.context.feature["id"].int64_list.value.append(number)
        for values in steps or ():
            made = sequence.feature_lists.feature_list["clicks"].feature.add()
            made.float_list.value.extend(values)
        records.append(sequence.SerializeToString())
    write_examples(tmp_path / "a.tfrecord", records * 9)
    (tmp_path / "schema.pbtxt").write_text(NESTED)
    reading = sources.Reading(step_lengths=("clicks",)).to_json()
    split = {"by": "hash", "keys": ["id"], "train": 5, "eval": 5}
    written = run(
        *(tmp_path / "a.tfrecord", split),
        schema_file=str(tmp_path / "schema.pbtxt"),
        reading=reading,
    )
    schema = raw.complete(read_schema(str(tmp_path / "schema.pbtxt")))
    adapter = raw.reader(schema, ["id", "nested"]).TensorAdapter()
    found = {}
    for file in Path(written.artifact.uri).glob(f"{kind}-*/*"):
        for batch in raw.batches(str(file), schema, ["id", "nested"]):
            tensors = adapter.ToBatchTensors(batch)
            ids = tensors["id"].values.numpy().tolist()
            found |= dict(zip(ids, tensors["nested"].to_list(), strict=True))
    assert found == {n: steps or [] for n, steps in enumerate(rows)}


def listed(value):
    return value if isinstance(value, list) else [] if value is None else [value]


@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_damaged_tfrecords_are_an_error(tmp_path_factory, data):
    """Cut off, or with another byte: never other rows without a message."""
    path = tmp_path_factory.getbasetemp() / "damaged.tfrecord"
    records = list(examples_of(without_nulls(flat(dict(row))) for row in ROWS[:9]))
    write_examples(path, records)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    ends = {sum(len(r) + 16 for r in records[:n]) for n in range(len(records))}
    if data.draw(st.booleans()) and place not in ends:
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged.tfrecord"):
        list(sources.open_source(str(path)).batches())


@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_json_that_is_cut_off_is_an_error_or_fewer_whole_lines(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    content = json_lines(ROWS[:9])
    place = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:place])
    try:
        source = sources.open_source(str(path))
        rows = list(values(source, [WHOLE]))
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert [row["id"] for row in rows] == [row["id"] for row in ROWS[: len(rows)]]
        assert b"\n" in content[place - 1 : place + 1] or place == len(content)

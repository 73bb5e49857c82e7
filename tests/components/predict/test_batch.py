"""Batch prediction: values and formats, beside the SavedModel called directly."""

from __future__ import annotations

import csv
import datetime
import json
import math
import operator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files import shards
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.sources import Reading
from strategos.components.data_files.spans import Span
from strategos.components.errors import BadInputError, UserError
from strategos.components.predict.batch import copied, outputs
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.predict.batch.formats import FORMATS
from strategos.components.predict.batch.shard import Predicted, PredictShard
from strategos.components.predict.model import Model
from strategos.components.predict.rows import Columns
from strategos.components.shards import pipeline, threads
from strategos.components.shards.engine import Engine

READING = Reading(extra_columns="ignore")
ROWS = 700
NAMES = ("id", "carrier", "hour", "temp", "day", "tags", "price")
CLASSES = ("on time", "late", "lost", "3")


def table(rows: int = ROWS) -> pa.Table:
    draw = np.random.default_rng(3)
    day = np.datetime64("2024-03-01", "us") + draw.integers(0, 10**12, rows)
    tags = [[f"t{n}", 'a,"b"\n'][: n % 3] for n in range(rows)]
    columns = [
        pa.array([f"{n:05}" for n in range(rows)]),
        pa.array(draw.choice(["AA", "B6", "Köln", "ZZ"], rows)),
        pa.array(draw.integers(0, 24, rows)),
        pa.array(draw.normal(10, 9, rows), mask=draw.random(rows) < 0.2),
        pa.array(day),
        pa.array(tags),
        pa.array(draw.integers(0, 2**62, rows)),
    ]
    return pa.table(columns, names=list(NAMES))


def expected(folder: Path, rows: pa.Table) -> dict[str, np.ndarray]:
    """The outputs of the model for examples that are made one by one."""
    import tensorflow as tf

    examples = []
    for row in rows.select(["carrier", "hour", "temp"]).to_pylist():
        example = tf.train.Example()
        feature = example.features.feature
        feature["carrier"].bytes_list.value.append(row["carrier"].encode())
        feature["hour"].int64_list.value.append(row["hour"])
        if row["temp"] is not None:
            feature["temp"].float_list.value.append(row["temp"])
        examples.append(example.SerializeToString())
    called = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answer = called(examples=tf.constant(examples))
    return {name: value.numpy() for name, value in answer.items()}


class Predictor:
    """Predicts files in this process, cut as a test wants."""

    def __init__(self, model: Path):
        columns = Columns.of(model)
        self.outputs = outputs.of_signature(
            Model(model).outputs, columns.named, str(model)
        )
        self._columns, self._model = columns, model

    def __call__(
        self,
        files: list[Path],
        out: Path,
        names: tuple[str, ...] = (),
        *,
        format: str = "parquet",
        size: int = 1 << 20,
        batch_size: int = 4096,
        workers: int = 1,
        reading: Reading = READING,
        on_beam: bool = False,
    ) -> Predicted:
        span = Span(0, None, None, tuple(map(str, files)))
        opened = shards.open_files([span], reading)
        runner = shards.ShardRunner(Engine(workers=1), str(out))
        parts = runner._parts(
            [source for _, source in opened], [size] * len(opened), size
        )
        pieces = [
            (Piece(source, part, 0, ""),)
            for (_, source), of_file in zip(opened, parts, strict=True)
            for part in of_file
        ]
        data = [Shard(*each) for each in enumerate(pieces)]
        folder = OutputFolder(str(out), "k", FORMATS[format].suffix)
        work = PredictShard(
            model=str(self._model),
            columns=self._columns,
            outputs=self.outputs,
            copied=copied.types_of(runner, data, names),
            format=format,
            batch_size=batch_size,
            folder=folder,
        )
        FORMATS[format].fields(work.schema)
        if on_beam:
            merge = Predicted.merge
            done = pipeline.fold(Engine(), data, work, merge, folder.staging, 4)
        else:
            done = threads.fold(data, work, Predicted.merge, workers, 0, 32)
        manifest = {"files": [{"rows": rows} for rows in done.files]}
        folder.publish(len(data), manifest)
        return done


@pytest.fixture(scope="module")
def model(project):
    return project / "serving" / "flights" / "10"


@pytest.fixture(scope="module")
def predictor(model):
    return Predictor(model)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows as Parquet in groups of 50, and as CSV and JSON lines."""
    folder, made = tmp_path_factory.mktemp("rows"), table()
    pq.write_table(made, folder / "rows.parquet", row_group_size=50)
    flat = made.drop(["tags", "day"])
    pyarrow.csv.write_csv(flat, folder / "rows.csv")
    lines = map(json.dumps, made.drop(["day"]).to_pylist())
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def oracle(model):
    return expected(model, table())


def check(found: list[dict], oracle: dict[str, np.ndarray]) -> None:
    """Compares the predictions of all rows, in order."""
    assert [row["id"] for row in found] == [f"{n:05}" for n in range(ROWS)]
    for name, value in oracle.items():
        column = [row[name] for row in found]
        if name == "predictions":
            assert tuple(column[0]) == CLASSES
            column = [list(row.values()) for row in column]
        elif name == "text":
            assert column == [each.decode() for each in value]
            continue
        assert np.shape(column[0]) == np.shape(value[0] if name != "score" else 0)
        ours = np.reshape(np.array(column, np.float32), value.shape)
        np.testing.assert_allclose(ours, value, rtol=2e-6, atol=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from(["parquet", "csv", "jsonl"]),
    size=st.integers(500, 40_000),
    batch_size=st.integers(1, 300).filter(lambda n: n == 1 or n > 7),
    workers=st.sampled_from([1, 3]),
)
def test_predictions_do_not_depend_on_the_cut(
    predictor, rows, oracle, tmp_path_factory, kind, size, batch_size, workers
):
    out = tmp_path_factory.mktemp("out")
    how = {"size": size, "batch_size": max(batch_size, 8), "workers": workers}
    done = predictor([rows / f"rows.{kind}"], out, ("id",), **how)
    files = sorted(out.glob("predictions-*.parquet"))
    assert [pq.read_metadata(file).num_rows for file in files] == done.files
    check(pq.read_table(out).to_pylist(), oracle)


def test_an_engine_of_beam_predicts_the_same(predictor, rows, oracle, tmp_path):
    how = {"size": 9_000, "on_beam": True}
    done = predictor([rows / "rows.jsonl"], tmp_path / "out", ("id",), **how)
    assert len(done.files) > 4
    check(pq.read_table(tmp_path / "out").to_pylist(), oracle)
    hidden = [x for x in (tmp_path / "out").iterdir() if x.name[0] == "."]
    assert hidden == []


def test_two_equal_commands_write_equal_bytes(predictor, rows, tmp_path):
    for name in "ab":
        how = {"workers": 1 + 2 * (name == "b"), "size": 9_000}
        predictor([rows / "rows.parquet"], tmp_path / name, NAMES, **how)
    names = sorted(x.name for x in (tmp_path / "a").glob("predictions-*"))
    assert len(names) > 3
    for name in names:
        parts = (tmp_path / folder / name for folder in "ab")
        assert operator.eq(*(part.read_bytes() for part in parts))


def test_parquet_keeps_the_types_of_copied_columns(predictor, rows, oracle, tmp_path):
    predictor([rows / "rows.parquet"], tmp_path / "out", NAMES)
    found = pq.read_table(tmp_path / "out")
    made = table()
    for name in NAMES:
        assert found[name].combine_chunks() == made[name].combine_chunks(), name
    check(found.to_pylist(), oracle)


def test_csv_is_read_by_the_csv_module(predictor, rows, oracle, tmp_path):
    predictor([rows / "rows.parquet"], tmp_path / "out", NAMES, format="csv")
    (file,) = (tmp_path / "out").glob("*.csv")
    found = list(csv.DictReader(file.open(newline="")))
    for row, made in zip(found, table().to_pylist(), strict=True):
        assert json.loads(row["tags"]) == made["tags"]
        assert int(row["price"]) == made["price"]
        assert (float(row["temp"]) if row["temp"] else None) == made["temp"]
        day = datetime.datetime.fromisoformat(row["day"].ljust(26, "0")[:26])
        assert day == made["day"] or row["day"] == str(made["day"])
    names = [f"predictions.{name}" for name in CLASSES]
    pieces = (
        {
            **{key: row[key] for key in ("id", "text")},
            "score": float(row["score"]),
            "grid": json.loads(row["grid"]),
            "predictions": {n[12:]: float(row[n]) for n in names},
        }
        for row in found
    )
    check(list(pieces), oracle)


def test_json_lines_are_read_by_the_json_module(predictor, rows, oracle, tmp_path):
    predictor([rows / "rows.parquet"], tmp_path / "out", NAMES, format="jsonl")
    (file,) = (tmp_path / "out").glob("*.jsonl")
    found = [json.loads(line) for line in file.open()]
    check(found, oracle)
    for row, made in zip(found, table().to_pylist(), strict=True):
        same = ("carrier", "hour", "temp", "tags", "price")
        assert {n: row[n] for n in same} == {n: made[n] for n in same}
        assert row["day"].startswith(f"{made['day']:%Y-%m-%d %H:%M:%S}")


def test_tfrecord_is_read_by_tf_data(model, rows, oracle, tmp_path):
    import tensorflow as tf

    flat = Predictor(model)
    flat.outputs = [each for each in flat.outputs if each.name != "grid"]
    names = ("id", "hour", "tags", "price", "day")
    flat([rows / "rows.parquet"], tmp_path / "out", names, format="tfrecord")
    (file,) = (tmp_path / "out").glob("*.tfrecord")
    classes = [f"predictions.{name}" for name in CLASSES]
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in [*classes, "score"]}
    spec |= {name: tf.io.FixedLenFeature([], tf.string) for name in ("id", "text")}
    spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in ("hour", "price")}
    spec["tags"] = tf.io.RaggedFeature(tf.string)
    data = tf.data.TFRecordDataset(str(file)).batch(ROWS)
    found = tf.io.parse_example(next(iter(data)), spec)
    made = table()
    assert found["id"].numpy().tolist() == [x.encode() for x in made["id"].to_pylist()]
    assert found["price"].numpy().tolist() == made["price"].to_pylist()
    tags = [[x.encode() for x in row] for row in made["tags"].to_pylist()]
    assert found["tags"].to_list() == tags
    ours = np.stack([found[name].numpy() for name in classes], 1)
    np.testing.assert_allclose(ours, oracle["predictions"], rtol=2e-6, atol=1e-6)


def test_a_format_that_cannot_hold_a_column_is_named(predictor, rows, tmp_path):
    with pytest.raises(UserError, match="cannot hold the column `grid`"):
        predictor([rows / "rows.parquet"], tmp_path / "a", format="tfrecord")
    pq.write_table(
        table(3).append_column("raw", pa.array([b"a", b"\xff", None])),
        tmp_path / "raw.parquet",
    )
    for format in ("csv", "jsonl"):
        with pytest.raises(UserError, match="`raw` has bytes that are not UTF-8"):
            out = tmp_path / format
            predictor([tmp_path / "raw.parquet"], out, ("raw",), format=format)
    flat = Predictor(predictor._model)
    flat.outputs = [each for each in flat.outputs if each.name != "grid"]
    with pytest.raises(UserError, match=r"`temp` has the number -?\d"):
        out, columns = tmp_path / "b", ("temp",)
        flat([rows / "rows.parquet"], out, columns, format="tfrecord")


def test_numbers_that_are_no_numbers_survive(tmp_path):
    schema = pa.schema([("x", pa.float32()), ("y", pa.list_(pa.float64()))])
    values = [0.1, math.inf, -math.inf, math.nan, None, 1e-40]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.float32()), pa.array([[v] for v in values])], schema=schema
    )
    wanted = np.array([math.nan if v is None else v for v in values], np.float32)
    for format in ("csv", "jsonl"):
        with open(tmp_path / format, "wb") as file:
            out = FORMATS[format](file, schema)
            out.write(rows)
            out.close()
        lines = (tmp_path / format).open(newline="")
        read = csv.DictReader(lines) if format == "csv" else map(json.loads, lines)
        found = [row["x"] for row in read]
        assert found[4] in ("", None)
        ours = [math.nan if x in ("", None) else float(x) for x in found]
        np.testing.assert_array_equal(np.array(ours, np.float32), wanted)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (['{"n": 1}', '{"n": null}', '{"m": 2}'], ("int64", [1, None, None])),
        (['{"n": 1}', '{"n": 2.5}'], ("double", [1.0, 2.5])),
        (
            ['{"n": ["a"]}', '{"n": []}', "{}"],
            ("list<item: string>", [["a"], [], None]),
        ),
        (['{"n": true}', "{}"], ("bool", [True, None])),
        (['{"n": null}'], ("string", [None])),
    ],
)
def test_columns_of_json_have_the_type_of_all_their_values(
    predictor, tmp_path, lines, wanted
):
    used = '"carrier": "AA", "hour": 3'
    text = "\n".join(line[:-1] + ", " * (line != "{}") + used + "}" for line in lines)
    (tmp_path / "rows.jsonl").write_text(text)
    predictor([tmp_path / "rows.jsonl"], tmp_path / "out", ("n",), size=16)
    found = pq.read_table(tmp_path / "out")["n"]
    # The newer pyarrow names the items of a list as Parquet does.
    kind = str(found.type).replace("<element: ", "<item: ")
    assert (kind, found.to_pylist()) == wanted


def test_files_with_types_that_have_none_in_common_are_named(predictor, tmp_path):
    used = {"carrier": ["AA"], "hour": [1]}
    types = {"a": pa.int32(), "b": pa.int64(), "c": pa.string()}
    for name, data_type in types.items():
        made = pa.table({**used, "n": pa.array([5]).cast(data_type)})
        pq.write_table(made, tmp_path / f"{name}.parquet")
    files = [tmp_path / f"{name}.parquet" for name in types]
    predictor(files[:2], tmp_path / "out", ("n",))
    found = pq.read_table(tmp_path / "out")["n"]
    assert (found.type, found.to_pylist()) == (pa.int64(), [5, 5])
    with pytest.raises(BadInputError, match=r"`n` is int32 in .*a\.parquet and string"):
        predictor([files[0], files[2]], tmp_path / "other", ("n",))


def test_bad_rows_stop_by_file_and_line_or_are_set_aside(predictor, tmp_path):
    hours = [
        "x" if n in (7, 90) else "9999999" if n == 40 else n % 24 for n in range(99)
    ]
    lines = [f"{n},AA,{hour}" for n, hour in enumerate(hours)]
    lines[60] = "60,AA"
    lines[61] = "61,,3"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["id,carrier,hour", *lines]) + "\n")
    with pytest.raises(BadInputError, match="line 9: column `hour`: received 'x'"):
        predictor([path], tmp_path / "out", ("id",), size=100)
    assert not list((tmp_path / "out").glob("predictions-*"))
    reading = Reading(on_bad_row="quarantine", extra_columns="ignore")
    done = predictor([path], tmp_path / "out", ("id",), size=100, reading=reading)
    ids = pq.read_table(tmp_path / "out")["id"].to_pylist()
    bad = {7: 9, 40: 42, 60: 62, 61: 63, 90: 92}
    assert ids == [str(n) for n in range(99) if n not in bad]
    files = sorted((tmp_path / "out" / "_rejected").iterdir())
    rejected = [json.loads(x) for file in files for x in file.read_text().splitlines()]
    assert [row["place"] for row in rejected] == [f"line {n}" for n in bad.values()]
    assert "hour is too large" in rejected[1]["reason"]
    assert (
        rejected[3]["reason"]
        == "column `carrier`: is empty, but the model needs a value"
    )
    assert done.rejected.rows == 5


def test_the_row_on_which_the_model_fails_is_named(predictor, tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"AA,{9999999 if n == 40 else n % 24}" for n in range(99)]
    path.write_text("\n".join(["carrier,hour", *lines]) + "\n")
    with pytest.raises(UserError, match=r"line 42: the model fails .*too large"):
        predictor([path], tmp_path / "out")

"""Reading each file format beside its floor: the library that decodes the format.

    python benchmarks/formats.py --rows 300000 --rounds 3

The same flights, with 19 columns, in each format. A side is CPU seconds (user and
system, all threads) in a process of its own, without imports: `ours` decodes all rows
as ExampleGen does, checks of values included; `floor` is pyarrow's reader (CSV, JSON
lines, Parquet, ORC), fastavro's reader into rows and then a pyarrow table (Avro), and
tfx-bsl's decoder of tf.Examples over tf.data (TFRecord). Medians of
the rounds, whose sides take turns.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pyarrow as pa
from pyarrow import csv, json, orc
from pyarrow import parquet as pq

FORMATS = (
    *("csv", "csv.gz", "csv.bz2", "jsonl", "jsonl.gz", "parquet", "orc", "avro"),
    *("tfrecord", "tfrecord.gz"),
)
_AVRO = {"int64": "long", "double": "double", "string": "string"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        side, path = arguments.one
        print(measure(side, path))
        return
    with tempfile.TemporaryDirectory() as scratch:
        table = flights(Path(scratch), arguments.rows)
        print(f"{table.num_rows:,} rows; CPU seconds")
        print(f"{'format':<12}{'MB':>8}{'ours':>8}{'floor':>8}{'ratio':>8}")
        for name in arguments.formats:
            path = str(Path(scratch, f"rows.{name}"))
            write(table, name, path)
            ours, floor = sides(path, arguments.rounds)
            size = os.path.getsize(path) / 1e6
            ratio = ours / floor
            print(f"{name:<12}{size:8.1f}{ours:8.2f}{floor:8.2f}{ratio:8.2f}")


def sides(path: str, rounds: int) -> list[float]:
    """Medians of CPU seconds of `ours` and `floor`."""
    found: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(rounds):
        for side, seconds in found.items():
            command = [sys.executable, __file__, "--one", side, path]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds.append(float(ran.stdout.splitlines()[-1]))
    return [statistics.median(seconds) for seconds in found.values()]


def measure(side: str, path: str) -> float:
    """CPU seconds of reading a file once, after a file of the format was read."""
    from strategos.components.data_files.sources import name_of, open_source

    name = name_of(path)
    assert name is not None
    read = ours if side == "ours" else FLOORS[name.removesuffix(".gz")]
    with tempfile.TemporaryDirectory() as scratch:  # imports, and threads that start
        small = str(Path(scratch, f"rows.{name}"))
        open_source(path).copy_first(100, small)
        read(small)
    before = time.process_time()  # of all threads
    read(path)
    return time.process_time() - before


def ours(path: str) -> None:
    """Reads all rows as ExampleGen does."""
    from strategos.components.data_files.sources import open_source

    rows = sum(batch.num_rows for batch in open_source(path).batches())
    assert rows


def of_csv(path: str) -> None:
    csv.read_csv(path)


def of_json(path: str) -> None:
    json.read_json(path)


def of_avro(path: str) -> None:
    import fastavro

    with open(path, "rb") as file:
        pa.Table.from_pylist([*fastavro.reader(file)])


def of_tfrecord(path: str) -> None:
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    decoder = ExamplesToRecordBatchDecoder()
    kind = "GZIP" if path.endswith(".gz") else ""
    for some in tf.data.TFRecordDataset(path, kind).batch(1000).as_numpy_iterator():
        decoder.DecodeBatch(some.tolist())


FLOORS: dict[str, Callable[[str], Any]] = {
    **{name: of_csv for name in ("csv", "csv.bz2")},
    "jsonl": of_json,
    "parquet": pq.read_table,
    "orc": lambda path: orc.ORCFile(path).read(),
    "avro": of_avro,
    "tfrecord": of_tfrecord,
}


def flights(folder: Path, rows: int) -> pa.Table:
    """Random rows with the columns of the flights of New York in 2013."""
    sys.path.insert(0, str(Path(__file__).parent))
    from example_gen import write_flights

    table = csv.read_csv(write_flights(folder / "flights.csv", rows))
    time = table.schema.get_field_index("time_hour")  # a text, as ExampleGen has it
    text = table.column(time).cast(pa.timestamp("s")).cast(pa.string())
    return table.set_column(time, "time_hour", text)


def write(table: pa.Table, name: str, path: str) -> None:
    """Writes the rows in a format."""
    kind, _, compression = name.partition(".")
    opened = {"gz": gzip.open, "bz2": bz2.open, "": open}[compression]
    if kind == "csv":
        with opened(path, "wb") as file:
            csv.write_csv(table, file)
    elif kind == "jsonl":
        import pandas

        with opened(path, "wt") as file:
            frame: pandas.DataFrame = table.to_pandas()
            frame.to_json(file, orient="records", lines=True)
    elif kind == "parquet":
        pq.write_table(table, path)
    elif kind == "orc":
        orc.write_table(table, path)
    elif kind == "avro":
        write_avro(table, path)
    else:
        write_tfrecord(table, path, compression)


def write_avro(table: pa.Table, path: str) -> None:
    import fastavro

    fields = [
        {"name": field.name, "type": ["null", _AVRO[str(field.type)]]}
        for field in table.schema
    ]
    schema = {"type": "record", "name": "Flight", "fields": fields}
    with open(path, "wb") as file:
        fastavro.writer(file, schema, table.to_pylist(), codec="deflate")


def write_tfrecord(table: pa.Table, path: str, compression: str) -> None:
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    encoder = RecordBatchToExamplesEncoder()
    options = "GZIP" if compression else None
    with contextlib.closing(tf.io.TFRecordWriter(path, options)) as writer:
        for batch in table.to_batches(10_000):
            lists = [listed(column) for column in batch.columns]
            rows = pa.RecordBatch.from_arrays(lists, batch.schema.names)
            for record in encoder.encode(rows):
                writer.write(record)


def listed(column: pa.Array) -> pa.Array:
    """A column as tf.Examples have it: lists of int64, float32 or bytes."""
    kinds = {
        "double": pa.large_list(pa.float32()),
        "string": pa.large_list(pa.binary()),
    }
    lists = [None if value is None else [value] for value in column.to_pylist()]
    return pa.array(lists, kinds.get(str(column.type), pa.large_list(pa.int64())))


if __name__ == "__main__":
    main()

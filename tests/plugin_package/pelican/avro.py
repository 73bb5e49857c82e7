"""Reads Avro files of records whose fields are numbers or text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import fastavro
import pyarrow as pa

from strategos import Source, UserError
from strategos.components.data_files.sources.source import MAX_ROWS, WHOLE, Part

TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}


class AvroSource(Source):
    """An Avro object container file."""

    def __init__(self, path: str):
        self.path = path
        with open(path, "rb") as file:
            fields = fastavro.reader(file).writer_schema["fields"]
        named = [(each["name"], TYPES.get(each["type"], pa.null())) for each in fields]
        self.declare(pa.schema(named))

    @classmethod
    def check(cls, path: str) -> None:
        with open(path, "rb") as file:
            if file.read(4) != b"Obj\x01":
                raise UserError(f"{path}: does not begin as an Avro file does")

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        schema = pa.schema(list(self.types.items()))
        with open(self.path, "rb") as file:
            rows = fastavro.reader(file)
            while some := list(itertools.islice(rows, MAX_ROWS)):
                yield pa.RecordBatch.from_pylist(some, schema)

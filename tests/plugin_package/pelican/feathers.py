"""Reads Feather files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import feather

from strategos import WHOLE, Part, Source, UserError


class FeatherSource(Source):
    """A Feather file, version 2: Arrow's own format."""

    def __init__(self, path: str):
        self.path = path
        self.declare(pa.ipc.open_file(path).schema)

    @classmethod
    def check(cls, path: str) -> None:
        with open(path, "rb") as file:
            if file.read(6) != b"ARROW1":
                raise UserError(f"{path}: does not begin as a Feather file does")

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        yield from feather.read_table(self.path).to_batches()

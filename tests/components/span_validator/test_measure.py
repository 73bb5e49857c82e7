"""Statistics of spans that are kept for later runs: of which files, by what code."""

from __future__ import annotations

import pytest

from strategos.components import plugins
from strategos.components.data_files.spans import find_spans
from strategos.components.shards.engine import Engine
from strategos.components.span_validator import FOLDER_VARIABLE, measure
from strategos.components.span_validator.measure import Reader

SCHEMA = 'feature { name: "delay" type: FLOAT } feature { name: "n" type: INT }'
READER = """
import pyarrow as pa
from strategos.components.data_files.sources.source import WHOLE, Source

class Lines(Source):
    def __init__(self, path):
        self.path = path
        self.declare(pa.schema({"delay": pa.float64()}))

    def batches(self, part=WHOLE):
        with open(self.path) as file:
            values = [FACTOR * float(line) for line in file]
        yield pa.RecordBatch.from_pydict({"delay": values})

    def rows_of(self, part):
        return sum(batch.num_rows for batch in self.batches(part))

PLUGINS = {"strategos.sources": {"lines": Lines}}
"""


@pytest.fixture(scope="module")
def object_store():
    return "s3"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


def test_a_schema_in_an_object_store_is_read(
    write, tmp_path, kept, bucket, bucket_client
):
    write(1, delay=[1.5, 2.0], n=[1, 2])
    bucket_client.put_object(Bucket="bucket", Key="s.pbtxt", Body=SCHEMA.encode())
    pattern = str(tmp_path / "data" / "{SPAN}" / "rows.csv")
    schema, work = f"{bucket}/s.pbtxt", str(tmp_path / "work")
    reader = Reader(Engine(), pattern, schema, (), work)
    (span,) = find_spans(pattern)
    assert measure.summaries(reader.of(span))["n"].mean == 1.5
    assert len([*kept.iterdir()]) == 1


def test_another_reader_of_a_plug_in_measures_a_span_again(tmp_path, kept, monkeypatch):
    monkeypatch.setattr(plugins, "_workload", None)
    (tmp_path / "1.lines").write_text("1.0\n2.5\n")
    pattern, means = str(tmp_path / "{SPAN}.lines"), []
    for factor in (1, 10, 1):
        folder = tmp_path / f"code-{factor}"
        folder.mkdir(exist_ok=True)
        text = READER.replace("FACTOR", str(factor))
        (folder / "own_reader.py").write_text(text)
        plugins.use(str(folder), ["own_reader"])
        reader = Reader(Engine(), pattern, "", (), str(tmp_path / "work"))
        (span,) = find_spans(pattern)
        means.append(measure.summaries(reader.of(span))["delay"].mean)
    assert means == [1.75, 17.5, 1.75]
    assert len([*kept.iterdir()]) == 2

"""Types of copied columns in files of predictions."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.predict.batch.formats import FORMATS


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_keeps_instants_of_any_unit(unit):
    instants = pa.array([1, None, 10**9 + 1], pa.timestamp(unit, "UTC"))
    batch = pa.RecordBatch.from_arrays([instants], ["at"])
    file = io.BytesIO()
    writer = FORMATS["parquet"](file, batch.schema)
    writer.write(batch)
    writer.close()
    found = pq.read_table(io.BytesIO(file.getvalue()))["at"].cast(pa.int64())
    stored = pq.read_table(io.BytesIO(file.getvalue()))["at"].type
    factor = 10**3 if (unit, stored.unit) == ("s", "ms") else 1
    assert found.to_pylist() == [factor, None, (10**9 + 1) * factor]
    assert stored.unit == {"s": "ms"}.get(unit, unit)  # Parquet has no seconds

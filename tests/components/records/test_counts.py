"""Rows that were written, compared with those that are read: no file may be lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.records import counts, encode, splits

SHARDS = {"train": 4, "validation": 2, "eval": 3}
ROWS = {split: n * (n + 1) // 2 for split, n in SHARDS.items()}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of examples in several files a split; shard `n` has `n + 1` rows."""
    folder = tmp_path_factory.mktemp("written")
    parts = {}
    for split, shards in SHARDS.items():
        for number in range(shards):
            writer = splits.SplitWriter(str(folder), number)
            rows = pa.array([[n] for n in range(number + 1)], pa.list_(pa.int64()))
            batch = pa.RecordBatch.from_pydict({"x": rows})
            flat = pa.RecordBatch.from_pydict({"x": rows.flatten()})
            writer.write(encode.serialize(batch), flat)
            part = writer.close()
            parts[split] = splits.merged(parts[split], part) if number else part
    splits.publish(str(folder), parts)
    return folder


def statistics_of(folder):
    """The number of rows of each split, by StatisticsGen."""
    from tensorflow_metadata.proto.v0 import statistics_pb2
    from tfx.types import standard_artifacts

    from strategos.components.statistics_gen import executor

    examples = standard_artifacts.Examples()
    statistics = standard_artifacts.ExampleStatistics()
    examples.uri, statistics.uri = str(folder), f"{folder}-statistics"
    examples.split_names = json.dumps(list(SHARDS))
    for split, rows in ROWS.items():
        counts.record(examples, split, rows)
    made = {"examples": [examples]}, {"statistics": [statistics]}
    executor.Executor().Do(*made, {"exclude_splits": "[]"})
    files = {x: Path(statistics.uri, f"Split-{x}", "FeatureStats.pb") for x in SHARDS}
    kind = statistics_pb2.DatasetFeatureStatisticsList
    found = {x: kind.FromString(file.read_bytes()) for x, file in files.items()}
    return {split: each.datasets[0].num_examples for split, each in found.items()}


@settings(derandomize=True, deadline=None, max_examples=20)
@given(data=st.data())
def test_a_file_that_is_missing_or_there_twice_is_found_where_it_is_read(
    written, tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("damaged") / "examples"
    shutil.copytree(written, folder)
    files = sorted(x for x in folder.rglob("*") if x.is_file())
    file = data.draw(st.sampled_from(files))
    kind, split = file.parent.name.split("-")
    rows = int(file.name.split("-")[1]) + 1
    if data.draw(st.booleans()):
        file.unlink()
        rows = -rows
    else:
        shutil.copy(file, file.with_name(f"copy-of-{file.name}"))
    if kind == "Split":  # StatisticsGen reads the columns beside them
        assert statistics_of(folder) == ROWS
        return
    found = f"{folder}/Split-{split} is damaged: read {ROWS[split] + rows} rows, but "
    with pytest.raises(UserError, match=f"{found}{ROWS[split]} were") as raised:
        statistics_of(folder)
    assert raised.value.remedy == counts.REMEDY


def test_training_reads_all_rows_that_were_written(workload, make_spec, tmp_path):
    from strategos.components.trainer.distribution.environment import ClusterSpec
    from strategos.components.trainer.model import workload as read
    from strategos.components.trainer.run import tfx_run_fn

    shutil.copytree(f"{workload.root}/transformed", tmp_path / "transformed")
    folder = tmp_path / "transformed" / "Split-eval"

    def files():
        return tuple(sorted(map(str, folder.iterdir())))

    spec = make_spec(train_rows=999)
    with pytest.raises(UserError, match="Split-train is damaged: read 1,000 .* 999 "):
        read.training_split(spec, ClusterSpec(), agreement=None)  # for `shard: files`
    assert read.split(spec, files(), 300).rows == 300
    for part in (folder, folder.with_name("Columns-eval")):
        for file in list(part.iterdir()):
            shutil.copy(file, file.with_name(f"x{file.name}"))
    readers = (
        lambda: read.split(spec, files(), 300),
        lambda: tfx_run_fn.count_rows(files(), 300),
    )
    for reader in readers:
        with pytest.raises(UserError, match=f"{folder} is damaged: read 600 rows"):
            reader()

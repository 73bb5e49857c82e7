"""Work on shards and whole components on a real Flink, beside the same in threads."""

from __future__ import annotations

import json
import os

import pytest

from strategos.components.errors import UserError
from strategos.components.shards.engine import Engine
from strategos.components.shards.flink.master import Master
from strategos.components.shards.fold import fold
from strategos.components.user_code import modules
from strategos.components.user_code.workload_paths import WorkloadPaths

pytestmark = pytest.mark.engine

WORK = """
import os, uuid

from strategos.components.errors import Place, UserError

def process(shard):
    return [(shard, os.getpid())]

def join(earlier, later):
    return earlier + later

def failing(shard):
    folder, number = shard
    open(f"{folder}/{number}-{uuid.uuid4()}", "w").close()
    if number % 2:
        raise UserError("is odd", received=str(number), place=Place("a.csv", number))
    return []

def broken(shard):
    return [1 // (shard - 3)]
"""

# Beam deals processes out in turns, in one job of ten the same one twice.
SLOTS = """
import json, sys

from strategos.components import fork_server
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.user_code import modules

fork_server.start()  # as in a run: workers are forks of what is imported
(folder,) = sys.argv[1:]
work, found = modules.load(f"{folder}/workload", "shard_work"), []
while 2 not in found and len(found) < 5:
    results = f"{folder}/{len(found)}"
    shards = fold(Engine("flink", 2), range(20), work.process, work.join, results)
    found.append(len({process for _, process in shards}))
print(json.dumps(found))
"""

PREPROCESSING = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs, custom_config):
    return globals()[custom_config["how"]](inputs)

def scale(inputs):
    text = tft.compute_and_apply_vocabulary(inputs["text"])
    return {"text": text, "key": tft.scale_to_z_score(inputs["key"])}

def divide(inputs):
    ratio = 1 / tf.cast(inputs["key"], tf.float32)
    checked = tf.debugging.check_numerics(ratio, "not a ratio")
    return {"key": tft.scale_to_z_score(checked)}

def divide_by_row(inputs):
    ratio = 1 / tf.cast(inputs["key"] - 977, tf.float32)
    checked = tf.debugging.check_numerics(ratio, "not a ratio")
    return {"key": tft.scale_to_z_score(inputs["key"]), "ratio": checked}
"""


@pytest.fixture
def flink(cluster, monkeypatch):
    """The cluster as the engine of the environment."""
    engine = Engine("portable", 2, job_endpoint=cluster.job_endpoint)
    (variable,) = engine.to_environment().items()
    monkeypatch.setenv(*variable)
    return engine


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A module of the user, which workers must find."""
    folder = tmp_path / "workload"
    folder.mkdir()
    (folder / "shard_work.py").write_text(WORK)
    (folder / "preprocessing.py").write_text(PREPROCESSING)
    (variable,) = WorkloadPaths(folder=str(folder)).to_environment().items()
    monkeypatch.setenv(*variable)
    return modules.load(str(folder), "shard_work")


def preprocessing(how):
    from strategos.components.transform import preprocessing

    folder = WorkloadPaths.from_environment().folder
    return preprocessing.load(folder, "preprocessing", {}, {"how": how})


def jobs(cluster):
    """The jobs that the cluster has had, the last one last."""
    master = Master(cluster.master)
    found = master.get("/jobs/overview")["jobs"]
    found.sort(key=lambda job: job["start-time"])
    return [master.get(f"/jobs/{job['jid']}") for job in found]


def schema_of_table():
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema()
    schema.feature.add(name="text", type=schema_pb2.BYTES)  # missing in some rows
    key = schema.feature.add(name="key", type=schema_pb2.INT)
    key.presence.min_fraction = 1
    key.shape.dim.add(size=1)
    return schema


def test_workers_are_other_processes_and_results_are_in_order(flink, work, tmp_path):
    found = fold(flink, range(100), work.process, work.join, str(tmp_path))
    assert [shard for shard, _ in found] == list(range(100))
    assert os.getpid() not in {process for _, process in found}


def test_slots_of_a_task_manager_work_in_processes_of_their_own(
    installed, warm_tfx, work, tmp_path
):
    driver = warm_tfx.script(SLOTS, str(tmp_path), TMPDIR=str(tmp_path))
    assert 2 in driver.answer(), "both slots used one process each time"


def test_error_of_a_shard_keeps_its_fields_and_is_not_tried_again(
    flink, work, tmp_path
):
    calls, folder = tmp_path / "calls", tmp_path / "results"
    calls.mkdir()
    folder.mkdir()
    shards = [(str(calls), number) for number in range(2, 60)]
    with pytest.raises(UserError) as error:
        fold(flink, shards, work.failing, work.join, str(folder))
    assert str(error.value) == "a.csv:3: received 3; is odd"
    tried = [name.partition("-")[0] for name in os.listdir(calls)]
    assert len(tried) == len(set(tried))
    assert not os.listdir(folder)


def test_bug_of_the_work_is_raised_with_its_traceback(flink, work, tmp_path):
    with pytest.raises(ZeroDivisionError) as error:
        fold(flink, range(9), work.broken, work.join, str(tmp_path))
    assert "shard_work.py" in str(error.value.__cause__)


def test_components_write_what_they_write_in_threads(
    flink, table, write_examples, write_statistics, written, tmp_path, monkeypatch
):
    from strategos.components.data_files import shards

    monkeypatch.setattr(shards, "_LEAST_BYTES", table.stat().st_size // 8)
    found = []
    for name, engine in {"flink": flink, "threads": Engine()}.items():
        (variable,) = engine.to_environment().items()
        monkeypatch.setenv(*variable)
        examples = write_examples(table, tmp_path / f"examples-{name}")
        statistics = write_statistics(examples, tmp_path / f"statistics-{name}")
        bins = {"feature": "key", "bins": [50]}
        request = json.dumps({"slices": [bins], "weight": "key", "sample": 0.5})
        place = tmp_path / f"sliced-{name}"
        sliced = write_statistics(examples, place, request=request)
        uris = examples.uri, statistics.uri, sliced.uri
        found.append([written(uri) for uri in uris])
    assert len(found[0][0]) == 4 * 8
    assert found[0] == found[1]


def test_stock_statistics_run_there(flink, table, write_examples, write_statistics):
    import tensorflow_data_validation as tfdv

    options = tfdv.StatsOptions(num_top_values=3).to_json()
    examples = write_examples(table, table.parent / "examples")
    found = write_statistics(
        examples, table.parent / "statistics", stats_options_json=options
    )
    path = f"{found.uri}/Split-train/FeatureStats.pb"
    (dataset,) = tfdv.load_stats_binary(path).datasets
    assert dataset.num_examples == examples.get_int_custom_property("rows_train")
    text = next(each for each in dataset.features if each.path.step == ["text"])
    assert len(text.string_stats.top_values) == 3


def test_transform_equals_that_in_threads(
    flink, work, cluster, table, write_examples, tmp_path
):
    from strategos.components.records import columns, read
    from strategos.components.transform import analysis
    from strategos.components.transform.materialize import materialize

    examples = write_examples(table, tmp_path / "examples", "hash")
    files = {split: columns.files(examples.uri, split) for split in ("train", "eval")}
    function, schema, found = preprocessing("scale"), schema_of_table(), []
    for name, engine in {"flink": flink, "threads": Engine()}.items():
        graph, uri = str(tmp_path / f"graph-{name}"), str(tmp_path / name)
        analysis.analyze(engine, function, files["train"], schema, graph)
        assert sum(materialize(engine, graph, files, uri).values()) == 60_000
        rows = [
            row
            for split in files
            for file in sorted((tmp_path / name / f"Split-{split}").iterdir())
            for row in read.records([str(file)]).as_numpy_iterator()
        ]
        found.append(rows)
        if engine is flink:
            analyzed, *_ = jobs(cluster)[-2:]
    assert found[0] == found[1]
    sent = [each["metrics"]["write-bytes"] for each in analyzed["vertices"]]
    assert sum(sent) < table.stat().st_size / 20  # workers read the rows themselves


def test_errors_in_rows_read_as_in_threads(
    flink, work, table, write_examples, tmp_path, monkeypatch
):
    """A row of too many fields, and one that the preprocessing cannot take."""
    from strategos.components.data_files import shards
    from strategos.components.records import columns
    from strategos.components.transform import analysis
    from strategos.components.transform.materialize import materialize

    monkeypatch.setattr(shards, "_LEAST_BYTES", table.stat().st_size // 8)
    threads, graph = Engine(), str(tmp_path / "graph")
    monkeypatch.setenv(*threads.to_environment().popitem())
    files = columns.files(write_examples(table, tmp_path / "fit").uri, "train")
    function = preprocessing("divide_by_row")
    analysis.analyze(threads, function, files, schema_of_table(), graph)
    lines, odd = table.read_text().splitlines(), tmp_path / "odd.csv"
    odd.write_text("\n".join([*lines, "977,1,x", ""]))
    uri = write_examples(odd, tmp_path / "odd").uri  # the row may be in either split
    files = {split: columns.files(uri, split) for split in ("train", "eval")}
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("\n".join([*lines[:50_000], "1,2,x,y", *lines[50_000:], ""]))
    found = []
    for name, engine in {"flink": flink, "threads": threads}.items():
        monkeypatch.setenv(*engine.to_environment().popitem())
        with pytest.raises(UserError) as of_row:
            write_examples(ragged, tmp_path / name)
        with pytest.raises(UserError) as of_operation:
            materialize(engine, graph, files, str(tmp_path / f"{name}-rows"))
        assert not list(tmp_path.glob(f"{name}*/**/*.gz"))
        found.append((str(of_row.value), str(of_operation.value)))
    assert found[0] == found[1]
    assert f"{ragged}: line 50001" in found[0][0]
    assert "not a ratio" in found[0][1]


def test_operation_that_fails_in_the_analysis_is_not_tried_again(
    flink, work, cluster, table, write_examples, tmp_path
):
    from strategos.components.records import columns
    from strategos.components.transform import analysis

    examples = write_examples(table, tmp_path / "examples")
    files = columns.files(examples.uri, "train")
    function, schema = preprocessing("divide"), schema_of_table()
    watched = Engine("portable", 2, cluster.job_endpoint, master=cluster.master)
    with pytest.raises(UserError, match="its analyzers need: not a ratio") as error:
        analysis.analyze(watched, function, files, schema, str(tmp_path / "graph"))
    assert len(str(error.value)) < 250
    last, master = jobs(cluster)[-1]["jid"], Master(cluster.master)
    assert master.get(f"/jobs/{last}/status") == {"status": "CANCELED"}
    failures = master.get(f"/jobs/{last}/exceptions")["exceptionHistory"]
    assert len(failures["entries"]) == 1

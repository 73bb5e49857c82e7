"""What components write does not depend on the engine, bit for bit."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path

import pytest

from strategos.components.shards.engine import Engine

SLICED = '{"slices": [{"feature": "key", "bins": [9]}], "weight": "key", "sample": 0.5}'


@pytest.mark.parametrize("split", ["ratio", "hash"])
def test_examples_and_statistics_are_the_same_for_any_number_of_threads(
    table, write_examples, write_statistics, written, tmp_path, monkeypatch, split
):
    from strategos.components.data_files import shards

    monkeypatch.setattr(shards, "_LEAST_BYTES", table.stat().st_size // 8)
    found = []
    for workers in (1, 2, 5):
        (variable,) = Engine(workers=workers).to_environment().items()
        monkeypatch.setenv(*variable)
        examples = write_examples(table, tmp_path / f"examples-{workers}", split)
        statistics = write_statistics(examples, tmp_path / f"statistics-{workers}")
        place = tmp_path / f"sliced-{workers}"
        sliced = write_statistics(examples, place, request=SLICED)
        uris = examples.uri, statistics.uri, sliced.uri
        found.append([written(uri) for uri in uris])
    assert len(found[0][0]) == 4 * 8  # examples and columns of two splits, by shard
    assert found[0] == found[1] == found[2]


class Disturbed:
    """Work whose shards are tried again: one attempt ends midway, two run at once.

    Attributes:
      late: Attempts that a runner has given up, and that still run.
    """

    def __init__(self, monkeypatch, kind):
        from strategos.components.shards import progress

        self._work, self._torn, self.late = kind.__call__, threading.local(), []
        monkeypatch.setattr(kind, "__call__", lambda *call: self._attempts(*call))
        monkeypatch.setattr(progress, "add", self._tear)

    def _tear(self, rows):
        if getattr(self._torn, "now", False):
            raise KeyError("killed")

    def _attempts(self, work, shard):
        self.late.append((work, shard))
        with futures.ThreadPoolExecutor(3) as pool:
            torn = pool.submit(self._half, work, shard)
            whole = [pool.submit(self._work, work, shard) for _ in range(2)]
        with pytest.raises(KeyError):
            torn.result()
        return whole[0].result()

    def _half(self, work, shard):
        self._torn.now = True
        self._work(work, shard)

    def finish(self):
        for work, shard in self.late:
            self._work(work, shard)


def test_shards_that_are_tried_again_are_written_once(
    table, write_examples, written, tmp_path, monkeypatch
):
    from strategos.components.data_files.writing import WriteShard

    write_examples(table, tmp_path / "plain")
    disturbed = Disturbed(monkeypatch, WriteShard)
    write_examples(table, tmp_path / "disturbed")
    assert written(tmp_path / "disturbed") == written(tmp_path / "plain")
    disturbed.finish()
    ours = written(tmp_path / "disturbed")
    shown = {name: data for name, data in ours.items() if not name.startswith(".")}
    assert len(shown) < len(ours)
    assert shown == written(tmp_path / "plain")


def test_transformed_rows_are_the_same_for_any_number_of_threads(written, tmp_path):
    import tensorflow as tf
    import tensorflow_transform as tft
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.transform import analysis
    from strategos.components.transform.materialize import materialize

    schema = schema_pb2.Schema()
    feature = schema.feature.add(name="x", type=schema_pb2.FLOAT)
    feature.presence.min_fraction = 1
    feature.shape.dim.add(size=1)
    files = []
    for number in range(9):
        files.append(str(tmp_path / f"{number}.gz"))
        with tf.io.TFRecordWriter(files[-1], "GZIP") as writer:
            for row in range(500):
                example = tf.train.Example()
                example.features.feature["x"].float_list.value.append(
                    row / (number + 1)
                )
                writer.write(example.SerializeToString())
    graph = str(tmp_path / "graph")

    def scale(inputs):
        return {"x": tft.scale_to_z_score(inputs["x"])}

    analysis.analyze(Engine(), scale, files, schema, graph)
    found = []
    for workers in (1, 2, 5):
        uri = str(tmp_path / f"transformed-{workers}")
        materialize(Engine(workers=workers), graph, {"train": files}, uri)
        found.append(written(uri))
    assert len(found[0]) == 2 * 9  # examples, and columns beside them
    assert found[0] == found[1] == found[2]


@pytest.mark.long
def test_components_write_the_same_with_helpers(warm_tfx, table, written, tmp_path):
    program = Path(__file__).with_name("with_helpers.py").read_text()
    ran = warm_tfx.script(program, str(table), str(tmp_path / "out"))
    # Of four components, one of which reads all rows twice, for two threads.
    assert int(ran.output().split()[-1]) >= 5 * 2
    alone, helped = (written(tmp_path / "out" / each) for each in ("alone", "helped"))
    assert len(alone) > 4 * 8 + 8
    assert helped == alone

"""Reading TFRecord files: the same records as TensorFlow's own reader gives."""

from __future__ import annotations

import gzip
import textwrap
import threading

import numpy as np
import tensorflow as tf

from strategos.components.records import read


def _write(path, records):
    kind = read.compression(str(path))
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(kind)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def test_batches_hold_the_records_of_all_files_in_order(tmp_path):
    draw = np.random.default_rng(1)
    wanted = [draw.bytes(int(size)) for size in draw.integers(0, 50, 1000)]
    files = [
        _write(tmp_path / "0.gz", wanted[:400]),
        _write(tmp_path / "1.gz", []),
        _write(tmp_path / "2.gz", wanted[400:401]),
        _write(tmp_path / "3", wanted[401:]),
    ]
    gzip.decompress((tmp_path / "0.gz").read_bytes())  # it is compressed
    batches = [batch.numpy().tolist() for batch in read.batches(files, 128)]
    assert sum(batches, []) == wanted
    assert [len(batch) for batch in batches] == [128, 128, 128, 17, *[128] * 4, 87]
    assert sum(batches, []) == list(read.records(files).as_numpy_iterator())
    assert not list(read.batches([], 128))


PLACED = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.records import read

    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, logical)
    with tf.device("CPU:1"):
        found = [(b.device[-5:], b.shape[0]) for b in read.batches(sys.argv[1:], 2)]
    print(json.dumps(found), flush=True)
    os._exit(0)
"""


def test_batches_are_read_on_the_cpu_whatever_device_is_the_default(
    warm_tensorflow, tmp_path
):
    files = [_write(tmp_path / str(n), [b"1", b"2", b"3"]) for n in range(2)]
    found = warm_tensorflow.script(textwrap.dedent(PLACED), *files).answer()
    assert found == [["CPU:0", 2]] * 3


def test_both_ends_are_the_first_and_the_last_records(tmp_path):
    records = [b"%d" % number for number in range(20)]
    parts = (records[:3], records[3:15], records[15:18], [], records[18:])
    files = [_write(tmp_path / f"{i}.gz", part) for i, part in enumerate(parts)]
    for rows in (1, 6, 14, 30):
        assert read.ends(files, rows) == [*records[:rows], *records[-rows:]]
    assert read.ends([], 5) == []


def test_threads_read_different_files(tmp_path):
    files = [
        _write(
            tmp_path / f"{number}.gz", [b"%d-%d" % (number, row) for row in range(999)]
        )
        for number in range(8)
    ]
    found = {}

    def work(file):
        found[file] = [r for b in read.batches([file], 100) for r in b.numpy().tolist()]

    threads = [threading.Thread(target=work, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, file in enumerate(files):
        assert found[file] == [b"%d-%d" % (number, row) for row in range(999)]

"""TFRecords that are streamed from an object store by Arrow, against TensorFlow."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.records import read, tfrecords
from strategos.components.trainer.data.records import Records

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Compressed, empty, plain, and with a record that no chunk holds."""
    draw, folder = np.random.default_rng(1), tmp_path_factory.mktemp("records")
    sizes = [draw.integers(0, 900, 4000), [], [0, storage.CHUNK + 9, 7], [3] * 500]
    names = [folder / name for name in ("0.gz", "1.gz", "2.gz", "3")]
    for path, some in zip(names, sizes, strict=True):
        kind = tf.io.TFRecordOptions(read.compression(str(path)))
        with tf.io.TFRecordWriter(str(path), kind) as writer:
            for size in some:
                writer.write(draw.bytes(int(size)))
    return [str(path) for path in names]


@pytest.fixture(scope="module")
def urls(files, bucket):
    found = [f"{bucket}/{Path(file).name}" for file in files]
    for file, url in zip(files, found, strict=True):
        storage.put(file, url)
    return found


def _all(files):
    return list(read.records(files).as_numpy_iterator())


def test_objects_have_the_records_of_the_files(files, urls):
    expected = _all(files)
    assert len(expected) == 4503
    assert _all(urls) == expected
    assert _all([urls[0], files[3]]) == _all([files[0], files[3]])
    for rows in (7, 3000):
        assert read.ends(urls, rows) == read.ends(files, rows)
        batches = [each.numpy().tolist() for each in read.batches(files, rows)]
        assert [b.numpy().tolist() for b in read.batches(urls, rows)] == batches
    for file in files:
        assert sum(tfrecords.read(file), []) == _all([file])


@pytest.mark.parametrize("of", [[0, 1, 2], [3]])
def test_streamed_pass_has_the_same_order(files, urls, of):
    key, first = tf.constant([1, 2], tf.int64), tf.constant(1, tf.int64)

    def blocks(names):
        found = Records.count([names[each] for each in of], limit=1 << 20)
        streamed = found.blocks(key, 16, first, here=True)
        return found.counts, [
            (block.tolist(), int(start))
            for block, start in streamed.as_numpy_iterator()
        ]

    assert blocks(urls) == blocks(files)


def _damaged(content, plain):
    for end in (len(content) - 1, len(content) // 2):
        yield content[:end]
    for at in (0, 9, 500, len(plain) - 1):  # a length, its sum, a record, its sum
        flipped = bytearray(plain)
        flipped[at] ^= 1
        yield gzip.compress(flipped, 1)


def test_damaged_object_is_an_error_with_its_url(files, bucket):
    content = Path(files[0]).read_bytes()
    for each in _damaged(content, gzip.decompress(content)):
        storage.write(f"{bucket}/damaged.gz", each)
        with pytest.raises(UserError, match=f"{bucket}/damaged.gz is damaged"):
            list(tfrecords.read(f"{bucket}/damaged.gz"))
    with pytest.raises(UserError, match=f"{bucket}/none.gz: nothing can be read"):
        list(tfrecords.read(f"{bucket}/none.gz"))

"""Columns that are read from an object store, batch by batch, without TensorFlow."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.records import columns

ROWS = 20_000


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file of columns with several batches."""
    folder = tmp_path_factory.mktemp("columns")
    writer = columns.ColumnWriter(str(folder), 0)
    numbers = np.random.default_rng(1).random(ROWS, np.float32)
    for part in np.array_split(numbers, 7):
        writer.write(pa.RecordBatch.from_arrays([pa.array(part)], ["x"]))
    (name,) = writer.close().files
    return str(folder / ".unpublished" / name)


@pytest.fixture(scope="module")
def url(bucket, file):
    storage.put(file, f"{bucket}/columns.arrow")
    return f"{bucket}/columns.arrow"


def test_batches_of_an_object_are_those_of_the_file(file, url):
    expected = list(columns.read([file]))
    assert len(expected) > 1
    assert list(columns.read([url])) == expected
    stored = pickle.loads(pickle.dumps(list(columns.stored_batches(url))))
    assert [each.read() for each in stored] == expected


def test_damaged_object_is_an_error_with_its_url(file, bucket):
    content = bytearray(Path(file).read_bytes())
    content[len(content) // 2] ^= 1
    storage.write(f"{bucket}/damaged.arrow", bytes(content))
    with pytest.raises(UserError, match=f"{bucket}/damaged.arrow is damaged"):
        list(columns.read([f"{bucket}/damaged.arrow"]))


def test_reading_writes_no_file(url):
    """A split may be larger than the free disk: nothing is copied before it is read."""
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from strategos.components.records import streams
print(sum(each.num_rows for each in streams.batches({url!r})), flush=True)
import os, sys
assert "tensorflow" not in sys.modules
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, f"{ROWS}\n".encode())

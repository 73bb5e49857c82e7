"""The rows of each replica from the distributed iterators of real strategies."""

from __future__ import annotations

import json
import socket

import pytest

pytestmark = pytest.mark.long

GLOBAL_BATCH = 7
ROWS = 24

CHILD = f"""
import functools, json, sys
import tensorflow as tf
from strategos.components.trainer.data import dataset, distributed

kind, path = sys.argv[1:]
if kind == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
elif kind == "workers":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()

spec = {{"x": tf.io.FixedLenFeature([], tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
        "y": tf.io.FixedLenFeature([], tf.float32)}}
@tf.function
def local_rows(iterator):
    local = strategy.experimental_local_results
    features, label = next(iterator)
    parts = zip(local(features["x"]), local(features["words"]), local(label))
    return [(x[:, 0], tf.size(words.values), y[:, 0]) for x, words, y in parts]

def steps(feed, count):
    iterator = iter(distributed.batches(strategy, feed))
    found = []
    for _ in range(count):
        parts = local_rows(iterator)
        for x, words, label in parts:
            assert int(words) == sum(n % 3 for n in x.numpy())
            assert label.numpy().tolist() == x.numpy().astype("float32").tolist()
        found.append([x.numpy().tolist() for x, _, _ in parts])
    return found

def again(feed, count):
    # Each evaluation asks for an iterator.
    batches = distributed.batches(strategy, feed)
    found = []
    for _ in range(2):
        iterator = iter(batches)
        for _ in range(count):
            found.append([x.numpy().tolist() for x, _, _ in local_rows(iterator)])
        assert (iter(batches) is iterator) == (kind != "one")
    return found

def answer(limit):
    split = dataset.read([path], spec, "y", limit)
    train = functools.partial(split.shuffled, {GLOBAL_BATCH}, seed=3)
    count = split.steps({GLOBAL_BATCH})
    ordered = functools.partial(split.ordered, {GLOBAL_BATCH})
    return {{
        "endless": steps(functools.partial(train, epochs=None), 2 * count),
        "ended": steps(functools.partial(train, epochs=2), 2 * count),
        "ordered": steps(ordered, count),
        "evaluated again": again(functools.partial(ordered, epochs=None), count),
    }}

found = {{"in memory": answer(1 << 30), "streamed": answer(100)}}
print(json.dumps(found), flush=True)
sys.stdin.read()
import os; os._exit(0)  # an ordinary exit of several workers can abort
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    import tensorflow as tf

    path = str(tmp_path_factory.mktemp("records") / "data")
    with tf.io.TFRecordWriter(path) as writer:
        for row in range(ROWS):
            example = tf.train.Example()
            feature = example.features.feature
            feature["x"].int64_list.value.append(row)
            feature["words"].bytes_list.value.extend([b"w"] * (row % 3))
            feature["y"].float_list.value.append(row)
            writer.write(example.SerializeToString())
    return path


@pytest.fixture(scope="module")
def run(script, answers, path):
    """Starts a process per entry of `environments`; returns the answers of all."""

    def run(kind, environments=({},)):
        return answers([script(CHILD, kind, path, **each) for each in environments])

    return run


@pytest.fixture(scope="module")
def one_device(run):
    return run("one")[0]


def _cluster(workers):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(workers)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        yield {"TF_CONFIG": json.dumps(config)}


def _whole(steps):
    return [sum(parts, []) for parts in steps]


def test_each_evaluation_gets_the_rows_of_one_pass(one_device):
    for feeds in one_device.values():
        assert feeds["evaluated again"] == 2 * feeds["ordered"]


def test_mirrored_replicas_divide_the_batches_of_one_device(run, one_device):
    (answer,) = run("mirrored")
    for where, feeds in one_device.items():
        for name, steps in feeds.items():
            assert _whole(answer[where][name]) == _whole(steps)
            assert [len(part) for part in answer[where][name][0]] == [4, 3]


def test_workers_divide_the_batches_of_one_device(run, one_device):
    answers = run("workers", list(_cluster(2)))
    for where, feeds in one_device.items():
        for name, steps in feeds.items():
            parts = [answer[where][name] for answer in answers]
            together = [first + second for first, second in zip(*parts, strict=True)]
            assert _whole(together) == _whole(steps)

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from strategos.components.errors import UserError

ROWS = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("records")
    paths = []
    for part, rows in enumerate((range(10), range(10, 16), range(16, ROWS))):
        path = str(folder / f"part-{part}.gz")
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for row in rows:
                example = tf.train.Example()
                feature = example.features.feature
                feature["x"].int64_list.value.append(row)
                feature["words"].bytes_list.value.extend([b"w"] * (row % 3))
                feature["y"].float_list.value.append(row / 10)
                writer.write(example.SerializeToString())
        paths.append(path)
    return paths


@pytest.fixture(scope="module")
def spec():
    import tensorflow as tf

    return {
        "x": tf.io.FixedLenFeature([], tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
        "y": tf.io.FixedLenFeature([1], tf.float32),
    }


@pytest.fixture(scope="module", params=["in memory", "streamed"])
def split(request, files, spec):
    from strategos.components.trainer.data import dataset

    limit = dataset.CACHE_LIMIT if request.param == "in memory" else 100
    found = dataset.read(files, spec, "y", limit)
    assert (found.columns is None) == (request.param == "streamed")
    return found


@pytest.fixture(scope="module")
def whole(split):
    """The rows of each batch of five, of all of several passes: `whole(passes)`."""

    @functools.cache
    def whole(epochs, seed=3):
        return _order(split.shuffled(5, seed=seed, epochs=epochs))

    return whole


def _order(batches):
    return [features["x"].numpy().ravel().tolist() for features, _ in batches]


def test_all_rows_are_counted(split):
    assert split.rows == ROWS
    assert split.steps(5) == 5


def test_an_evaluation_pass_keeps_the_order_and_the_last_partial_batch(split):
    batches = _order(split.ordered(5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert sum(batches, []) == list(range(ROWS))


def test_features_are_tables_and_the_label_is_apart(split):
    import tensorflow as tf

    features, label = split.sample(4)
    assert features["x"].shape == (4, 1)
    assert isinstance(features["words"], tf.SparseTensor)
    assert label.shape == (4, 1)
    assert set(features) == {"x", "words"}


def test_values_of_a_row_stay_together(split):
    import tensorflow as tf

    for features, label in split.shuffled(5, seed=3, epochs=1):
        x = features["x"].numpy().ravel()
        assert label.numpy().ravel() == pytest.approx(x / 10)
        words = tf.sparse.to_dense(features["words"]).numpy()
        assert [(row != b"").sum() for row in words] == [n % 3 for n in x]


@pytest.mark.parametrize("rows", [4, 15, 100])
def test_both_ends_are_the_first_and_the_last_rows(split, rows):
    expected = [*list(range(ROWS))[:rows], *list(range(ROWS))[-rows:]]
    features = split.ends(rows)
    assert features["x"].numpy().ravel().tolist() == expected
    words = features["words"].indices.numpy()[:, 0].tolist()
    assert [words.count(place) for place in range(len(expected))] == [
        row % 3 for row in expected
    ]


def test_each_pass_has_every_row_once_in_an_order_of_its_own(whole):
    batches = whole(2)
    first, second = sum(batches[:5], []), sum(batches[5:], [])
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert first != list(range(ROWS))


def test_the_order_is_a_function_of_the_seed(split, whole):
    assert _order(split.shuffled(5, seed=3, epochs=2)) == whole(2)
    assert whole(2) != whole(2, seed=4)


@pytest.mark.parametrize("step", [1, 4, 5, 7])
def test_starting_at_a_step_gives_the_same_batches_from_there(split, whole, step):
    feed = split.shuffled(5, seed=3, epochs=2, first_step=step)
    assert _order(feed) == whole(2)[step:]


def test_blocks_skipped_at_the_start_send_heartbeats(files, spec):
    from strategos.components.trainer.data import dataset
    from strategos.components.trainer.gang import heartbeat

    streamed = dataset.read(files, spec, "y", 100)
    for first_step, said in ((0, b""), (4, b'{"alive": true}\n')):
        read, write = os.pipe()
        heartbeat.use(heartbeat.Reporter(write))
        try:
            feed = streamed.shuffled(5, seed=3, epochs=1, first_step=first_step)
            assert len(list(feed)) == 5 - first_step
        finally:
            heartbeat.use(heartbeat.Reporter())
        os.close(write)
        assert os.read(read, 1000) == said


def _by_step(batches, replicas):
    """Rows of each step, of as many consecutive elements as there are replicas."""
    parts = _order(batches)
    return [parts[i : i + replicas] for i in range(0, len(parts), replicas)]


def _even(rows, replicas):
    return [len(rows) // replicas + (r < len(rows) % replicas) for r in range(replicas)]


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_replicas_get_consecutive_parts_of_the_batches_of_one_device(
    split, whole, replicas
):
    feed = split.shuffled(5, seed=3, epochs=2, replicas=replicas, share=range(replicas))
    steps = _by_step(feed, replicas)
    assert [sum(parts, []) for parts in steps] == whole(2)
    for parts, rows in zip(steps, whole(2), strict=True):
        assert [len(part) for part in parts] == _even(rows, replicas)


def test_pipelines_together_give_the_batches_of_one_device(split):
    feeds = [
        _by_step(split.shuffled(7, seed=3, epochs=2, replicas=3, share=share), n)
        for share, n in ((range(0, 1), 1), (range(1, 3), 2))
    ]
    steps = [sum(first + second, []) for first, second in zip(*feeds, strict=True)]
    assert steps == _order(split.shuffled(7, seed=3, epochs=2))


def test_an_evaluation_pass_is_divided_too(split):
    feed = split.ordered(5, replicas=4, share=range(4))
    steps = _by_step(feed, 4)
    assert [len(part) for part in steps[-1]] == [1, 1, 1, 0]
    assert sum(sum(steps, []), []) == list(range(ROWS))


def test_a_replica_without_rows_gets_an_empty_batch(split):
    import tensorflow as tf

    *_, (features, label) = split.ordered(5, replicas=4, share=range(4))
    assert features["x"].shape == (0, 1)
    assert label.shape == (0, 1)
    assert isinstance(features["words"], tf.SparseTensor)
    assert features["words"].dense_shape[0] == 0


@pytest.mark.parametrize("step", [2, 4, 5, 9])
def test_a_share_can_start_at_a_step(split, whole, step):
    feed = {"seed": 3, "epochs": 2, "replicas": 2, "share": range(1, 2)}
    second = [batch[-(len(batch) // 2) :] for batch in whole(2)]
    assert _order(split.shuffled(5, first_step=step, **feed)) == second[step:]


def test_the_smaller_last_batch_of_each_epoch_can_be_dropped(split, whole):
    feed = {"seed": 3, "epochs": 2}
    assert split.steps(5, drop_last=True) == 4
    full = [batch for batch in whole(2) if len(batch) == 5]
    assert _order(split.shuffled(5, drop_last=True, **feed)) == full
    resumed = split.shuffled(5, drop_last=True, first_step=6, **feed)
    assert _order(resumed) == full[6:]


def test_batches_that_are_always_even_have_a_fixed_shape(split):
    feed = {"seed": 3, "epochs": 1, "drop_last": True}
    features, _ = split.shuffled(4, **feed).element_spec
    assert features["x"].shape == (4, 1)
    divided = split.shuffled(4, replicas=2, share=range(2), **feed)
    assert divided.element_spec[1].shape == (2, 1)
    uneven = split.shuffled(4, replicas=3, share=range(3), **feed)
    assert uneven.element_spec[1].shape[0] is None


def test_dropping_the_only_batch_is_an_error_with_a_remedy(split):
    with pytest.raises(UserError, match=r"received 24; the 23 rows of an.*\n.*smaller"):
        split.shuffled(24, seed=3, epochs=1, drop_last=True)


def test_a_stream_without_end_goes_on_as_one_with_an_end(split, whole):
    import tensorflow as tf

    endless = split.shuffled(5, seed=3, epochs=None)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert _order(endless.take(10)) == whole(2)


@pytest.mark.parametrize("pipelines", [1, 2])
def test_remote_pipelines_take_turns_at_the_batches_of_one_device(
    split, whole, pipelines
):
    import tensorflow as tf

    @tf.function
    def make(pipeline):
        return split.remote(
            5,
            seed=3,
            epochs=2,
            first_step=3,
            pipelines=pipelines,
            pipeline=pipeline,
        )

    for pipeline in range(pipelines):
        batches = _order(make(tf.constant(pipeline)))
        assert batches == whole(2)[3:][pipeline::pipelines]
    traced = make.get_concrete_function(tf.TensorSpec([], tf.int32))
    assert not traced.captured_inputs


@pytest.mark.parametrize("pipelines", [1, 2])
def test_remote_pipelines_take_turns_in_the_order_of_the_files(split, pipelines):
    import tensorflow as tf

    @tf.function
    def make(pipeline):
        return split.remote(5, epochs=2, pipelines=pipelines, pipeline=pipeline)

    passes = 2 * _order(split.ordered(5))
    for pipeline in range(pipelines):
        assert _order(make(tf.constant(pipeline))) == passes[pipeline::pipelines]
    traced = make.get_concrete_function(tf.TensorSpec([], tf.int32))
    assert not traced.captured_inputs


def test_the_log_line_describes_what_is_read(split):
    length = sum(Path(file).stat().st_size for file in split.files)
    size = f"23 rows from 3 files ({length} bytes)"
    how = "streamed" if split.columns is None else "kept in memory"
    assert split.reads().startswith(f"{size}; {how}")
    several = f"{size}, all of them: any worker may need any row; {how}"
    assert split.reads(2, range(1)).startswith(several)


def test_no_example_is_an_error_with_a_remedy(tmp_path, spec):
    import tensorflow as tf

    from strategos.components.trainer.data import dataset

    path = str(tmp_path / "empty.gz")
    tf.io.TFRecordWriter(path, "GZIP").close()
    with pytest.raises(
        UserError, match=r"data.split: there is no example in .*empty.gz"
    ):
        dataset.read([path], spec, "y")


LIMIT = 16 << 20
TIMES = 10

STREAM_UNDER_A_MEMORY_LIMIT = f"""
import json, resource, sys
import tensorflow as tf
from strategos.components.trainer.data import dataset

ROWS, SIZE, LIMIT = {TIMES} * 4096, 4096, {LIMIT}
SPEC = {{"text": tf.io.FixedLenFeature([], tf.string),
        "x": tf.io.FixedLenFeature([], tf.int64)}}

def write(path, rows):
    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.append(b"t" * SIZE)
    number = example.features.feature["x"].int64_list
    number.value.append(0)
    with tf.io.TFRecordWriter(path) as writer:
        for row in range(rows):
            number.value[0] = row
            writer.write(example.SerializeToString())

def train(path):
    split = dataset.read([path], SPEC, "x", LIMIT)
    assert split.columns is None
    order = [x.numpy().ravel() for _, x in split.shuffled(256, seed=1, epochs=1)]
    for _ in split.ordered(256):
        pass
    return tf.concat(order, 0).numpy()

def data_bytes():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmData"].split()[0]) << 10

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

folder = sys.argv[1]
write(folder + "/warm", 3 * ROWS // {TIMES})  # somewhat above the limit
train(folder + "/warm")
write(folder + "/large", ROWS)
before = peak()
allowed = data_bytes() + 4 * LIMIT
resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
rows = train(folder + "/large")
print(json.dumps({{"grown": peak() - before, "rows": len(set(rows.tolist())),
                  "moved": float(abs(rows - sorted(rows)).mean() / len(rows))}}))
"""


@pytest.fixture(scope="module")
def streamed_under_a_limit(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("large"))
    command = [sys.executable, "-c", STREAM_UNDER_A_MEMORY_LIMIT, folder]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_small_stacks,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _small_stacks():
    """Stacks of threads count as data: of 1 MiB, not 8."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, hard))


@pytest.mark.long
def test_data_ten_times_the_limit_is_streamed_in_memory_that_does_not_grow(
    streamed_under_a_limit,
):
    assert streamed_under_a_limit["rows"] == TIMES * 4096
    assert streamed_under_a_limit["grown"] < TIMES / 2 * LIMIT


@pytest.mark.long
def test_rows_of_one_large_file_are_mixed_over_the_whole_pass(streamed_under_a_limit):
    """In a random order, a row moves by a third of the pass on average."""
    assert streamed_under_a_limit["moved"] > 0.25

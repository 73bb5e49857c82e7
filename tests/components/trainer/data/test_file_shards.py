from __future__ import annotations

import re

import pytest

from strategos.components.errors import UserError

ROWS = {"a": 9, "b": 6, "c": 5, "d": 3}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("records")
    first, paths = 0, []
    for name, rows in ROWS.items():
        paths.append(str(folder / name))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for row in range(first, first + rows):
                example = tf.train.Example()
                example.features.feature["x"].int64_list.value.append(row)
                example.features.feature["y"].float_list.value.append(row / 10)
                writer.write(example.SerializeToString())
        first += rows
    return paths


@pytest.fixture(scope="module", params=["in memory", "streamed"])
def shares(request, files):
    """The rows that two pipelines read; each knows the number of rows of both."""
    import tensorflow as tf

    from strategos.components.trainer.data import dataset, file_shards

    spec = {
        "x": tf.io.FixedLenFeature([], tf.int64),
        "y": tf.io.FixedLenFeature([], tf.float32),
    }
    limit = dataset.CACHE_LIMIT if request.param == "in memory" else 100
    rows = [
        dataset.read(file_shards.files_of(files, i, 2), spec, "y", limit).rows
        for i in range(2)
    ]
    return [
        file_shards.read(
            files, spec, "y", limit, pipeline=i, pipelines=2, total=lambda *_: rows
        )
        for i in range(2)
    ]


def _order(batches):
    return [features["x"].numpy().ravel().tolist() for features, _ in batches]


def test_files_are_divided_by_size_and_none_is_read_twice(files):
    from strategos.components.trainer.data import file_shards

    own = [file_shards.files_of(files, i, 2) for i in range(2)]
    assert sorted(own[0] + own[1]) == sorted(files)
    rows = [sum(ROWS[file[-1]] for file in share) for share in own]
    assert rows == [12, 11]


def test_fewer_files_than_pipelines_is_an_error_that_names_the_setting(files):
    from strategos.components.trainer.data import file_shards

    with pytest.raises(
        UserError, match=r"distribution\.shard.*4 files for 5 w.*\n.*`rows`"
    ):
        file_shards.files_of(files, 0, 5)


def test_all_pipelines_have_as_many_whole_batches_of_their_own_rows(shares):
    feeds = [
        _order(share.shuffled(8, seed=1, epochs=2, replicas=4, share=replicas))
        for share, replicas in zip(shares, (range(2), range(2, 4)), strict=True)
    ]
    assert shares[0].steps(8) == shares[1].steps(8) == 2
    assert [len(batch) for feed in feeds for batch in feed] == [2] * 16
    epochs = [[sum(feed[:4], []), sum(feed[4:], [])] for feed in feeds]
    for first, second in epochs:
        assert len(set(first)) == len(set(second)) == 8
        assert first != second
    assert not set(sum(epochs[0], [])) & set(sum(epochs[1], []))


def test_starting_at_a_step_gives_the_same_batches_from_there(shares):
    feed = {"seed": 1, "epochs": 2, "replicas": 2, "share": range(1)}
    whole = _order(shares[0].shuffled(8, **feed))
    for step in (1, 2, 3):
        rest = shares[0].shuffled(8, first_step=step, **feed)
        assert _order(rest) == whole[step:], step


def test_rows_left_out_of_an_epoch_differ_from_epoch_to_epoch(shares):
    batches = _order(shares[0].shuffled(8, seed=1, epochs=6))
    assert len(set(sum(batches, []))) == shares[0].split.rows


def test_a_batch_that_cannot_be_divided_evenly_is_rejected(shares):
    with pytest.raises(
        UserError, match="received 7; the batch cannot be divided evenly among 2 rep"
    ) as raised:
        shares[0].shuffled(7, seed=1, epochs=1, replicas=2, share=range(1))
    assert "multiple of 2, or use `shard: rows`" in str(raised.value)


def test_the_log_line_describes_the_share_that_is_read(shares):
    line = shares[0].reads(2, range(1))
    assert re.match(r"12 rows from 2 files \(\S+ (bytes|kB)\)", line)
    assert "of 23 rows; an epoch uses 11 of each of 2 pipelines" in line


@pytest.mark.long
def test_two_workers_train_on_files_of_their_own(
    make_spec, train_only, workload, tmp_path
):
    import tensorflow as tf

    (source,) = workload.transformed("train")
    rows = tf.data.TFRecordDataset(source, "GZIP").take(22).as_numpy_iterator()
    rows, files = list(rows), [str(tmp_path / f"{number}.gz") for number in range(2)]
    for number, file in enumerate(files):
        with tf.io.TFRecordWriter(file, "GZIP") as writer:
            for row in rows[number::2]:
                writer.write(row)
    spec = make_spec(
        module="one_unit",
        train_files=tuple(files),
        batch_size=4,
        epochs=3,
        distribution={
            "strategy": "multi_worker_mirrored",
            "workers": 2,
            "shard": "files",
        },
    )
    facts = train_only(spec)
    # 11 rows in each file give 5 batches of 2.
    assert (facts["steps"], facts["examples"]) == (15, 60)
    assert len(facts["history"]["loss"]) == 3

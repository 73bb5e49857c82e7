from __future__ import annotations

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


@pytest.fixture(params=["in memory", "streamed"])
def split(request, files, spec):
    from strategos.components.trainer import dataset

    limit = dataset.CACHE_LIMIT if request.param == "in memory" else 100
    found = dataset.read(files, spec, "y", limit)
    assert (found.columns is None) == (request.param == "streamed")
    return found


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


def test_each_pass_has_every_row_once_in_an_order_of_its_own(split):
    batches = _order(split.shuffled(5, seed=3, epochs=2))
    first, second = sum(batches[:5], []), sum(batches[5:], [])
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert first != list(range(ROWS))


def test_the_order_is_a_function_of_the_seed(split):
    assert _order(split.shuffled(5, seed=3, epochs=2)) == _order(
        split.shuffled(5, seed=3, epochs=2)
    )
    assert _order(split.shuffled(5, seed=3, epochs=1)) != _order(
        split.shuffled(5, seed=4, epochs=1)
    )


@pytest.mark.parametrize("step", [1, 4, 5, 7])
def test_starting_at_a_step_gives_what_would_have_come_there(split, step):
    whole = _order(split.shuffled(5, seed=3, epochs=3))
    assert _order(split.shuffled(5, seed=3, epochs=3, first_step=step)) == whole[step:]


def test_no_example_is_an_error_that_says_what_to_do(tmp_path, spec):
    import tensorflow as tf

    from strategos.components.trainer import dataset

    path = str(tmp_path / "empty.gz")
    tf.io.TFRecordWriter(path, "GZIP").close()
    with pytest.raises(UserError, match=r"no example in .*empty.gz.*data.split"):
        dataset.read([path], spec, "y")

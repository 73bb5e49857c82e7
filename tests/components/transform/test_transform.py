from __future__ import annotations

import shutil

import pytest

from strategos.components.errors import UserError


def _rows(workload, split):
    import tensorflow as tf
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(workload.graph).transformed_feature_spec()
    records = tf.data.TFRecordDataset(workload.transformed(split), "GZIP")
    return list(records.map(lambda record: tf.io.parse_single_example(record, spec)))


def _raw_rows(workload, split):
    import tensorflow as tf

    records = tf.data.TFRecordDataset(workload.raw(split), "GZIP")
    return [tf.train.Example.FromString(r) for r in records.as_numpy_iterator()]


def test_both_splits_are_transformed_in_order(workload):
    for split, count in (("train", 1000), ("eval", 300)):
        rows, raw = _rows(workload, split), _raw_rows(workload, split)
        assert len(rows) == count
        labels = [r.features.feature["late"].int64_list.value[0] for r in raw]
        assert [int(row["late"][0]) for row in rows] == labels


def test_only_the_training_split_is_analyzed(workload):
    import numpy as np

    train = np.array([row["distance"][0] for row in _rows(workload, "train")])
    evaluation = np.array([row["distance"][0] for row in _rows(workload, "eval")])
    assert abs(train.mean()) < 1e-5
    assert abs(train.std() - 1) < 1e-3
    assert abs(evaluation.mean()) > 1e-4


def test_rows_equal_those_of_tft_on_beam(workload):
    import tensorflow as tf
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(workload.graph)
    records = tf.data.TFRecordDataset(workload.raw("eval"), "GZIP").batch(300)
    raw = tf.io.parse_example(next(iter(records)), output.raw_feature_spec())
    expected = output.transform_features_layer()(raw)
    for i, row in enumerate(_rows(workload, "eval")):
        for name, value in row.items():
            tf.debugging.assert_equal(value, expected[name][i])


def test_nothing_temporary_is_left(workload):
    names = {path.name for path in (workload.root / "graph").iterdir()}
    ours = {"sample", "missing.json"}
    assert names == {"metadata", "transform_fn", "transformed_metadata"} | ours


def test_raw_rows_of_both_ends_of_the_evaluation_split_are_kept(workload):
    from strategos.components.transformed import sample

    found = list(map(_as_example, sample.load(workload.graph)))
    raw = _raw_rows(workload, "eval")
    assert found == [*raw[: sample.ROWS], *raw[-sample.ROWS :]]


def _as_example(record):
    import tensorflow as tf

    return tf.train.Example.FromString(record)


def test_sparse_text_and_several_values_survive_without_an_analyzer(
    new_workload, transform
):
    workload = new_workload(train=5, evaluation=5)
    workload.write_module(
        "features",
        """
        import tensorflow as tf

        def preprocessing_fn(inputs):
            distance = inputs["distance"]
            return {
                "temp": inputs["temp"],
                "carrier": inputs["carrier"],
                "pair": tf.concat([distance, -distance], axis=1),
                "image": tf.reshape(tf.tile(distance, [1, 4]), [-1, 2, 2]),
                "late": inputs["late"],
            }
        """,
    )
    made = transform(workload, "features", rows={"train": 5})
    assert made == {"train": 5, "eval": 5}
    rows, raw = _rows(workload, "train"), _raw_rows(workload, "train")
    assert len(rows) == 5
    for row, example in zip(rows, raw, strict=True):
        feature = example.features.feature
        distance = feature["distance"].float_list.value[0]
        assert row["temp"].values.numpy().tolist() == list(
            feature["temp"].float_list.value
        )
        assert row["carrier"].numpy().tolist() == list(
            feature["carrier"].bytes_list.value
        )
        assert row["pair"].numpy().tolist() == [distance, -distance]
        assert row["image"].numpy().tolist() == [[distance] * 2] * 2
    # The Trainer parses tf.Examples of such features.
    assert not (workload.root / "transformed" / "Columns-train").exists()
    for name in ("graph", "transformed"):
        shutil.rmtree(workload.root / name)
    with pytest.raises(UserError, match="Split-train is damaged: read 5 rows, but 6"):
        transform(workload, "features", rows={"train": 6})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'raise ValueError("no such unit")',
            "bad.py:5: ValueError: no such unit",
        ),
        (
            'return {"late": inputs["latte"]}',
            "bad.py:5: KeyError: 'latte' is not among the inputs: late, temp.",
        ),
        (
            "return [1]",
            "returned a list\n    Allowed: a dict of feature name to tensor",
        ),
        ("return None", "returned a NoneType"),
        (
            'return {"temp": inputs["temp"]}',
            "does not return the label `late`. Returned: temp.",
        ),
        ('return {"late": 1}', "returned a int for `late`\n    Allowed: a tensor"),
        (
            'return {"late": tf.cast(inputs["late"], tf.float64)}',
            "returned `late` as float64, expected int64, float32 or string",
        ),
    ],
)
def test_errors_of_the_function_name_the_users_line(tmp_path, body, message):
    import tensorflow as tf

    from strategos.components.transform import preprocessing

    source = f"import tensorflow as tf\n\n\ndef preprocessing_fn(inputs):\n    {body}\n"
    (tmp_path / "bad.py").write_text(source)
    function = preprocessing.load(str(tmp_path), "bad", {"label": "late"}, {})
    with pytest.raises(UserError) as raised:
        function({"late": tf.constant([[1]]), "temp": tf.constant([[1.0]])})
    assert message in str(raised.value)
    assert str(tmp_path / "bad.py") in str(raised.value)


def test_a_function_of_another_name_is_told(tmp_path):
    from strategos.components.transform import preprocessing

    (tmp_path / "named.py").write_text("def preprocess(inputs):\n    return inputs\n")
    with pytest.raises(UserError, match=r"no function `preprocessing_fn`.*preprocess"):
        preprocessing.load(str(tmp_path), "named", {"label": "late"}, {})


def test_the_row_on_which_the_function_fails_is_shown(new_workload, transform):
    workload = new_workload(train=50, evaluation=20)
    rows = _raw_rows(workload, "train")
    *_, second, most = sorted(
        row.features.feature["distance"].float_list.value[0] for row in rows
    )
    workload.write_module(
        "checked",
        f"""
        import tensorflow as tf

        def preprocessing_fn(inputs):
            distance = inputs["distance"]
            far = distance > {(second + most) / 2}
            bad = tf.where(far, float("nan"), distance)
            checked = tf.debugging.check_numerics(bad, "too far")
            return {{"distance": checked, "late": inputs["late"]}}
        """,
    )
    with pytest.raises(UserError, match="`preprocessing_fn` fails on ") as caught:
        transform(workload, "checked")
    assert f"'distance': [{most}]" in str(caught.value)
    assert "too far" in str(caught.value)
    assert not list((workload.root / "transformed").glob("Split-*/data*"))


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_text_that_is_no_number_is_shown_with_its_column(
    new_workload, transform, analyzed
):
    workload = new_workload(train=50, evaluation=20)
    scaled = "tft.scale_to_z_score(number)" if analyzed else "number"
    workload.write_module(
        "numbers",
        f"""
        import tensorflow as tf
        import tensorflow_transform as tft

        def preprocessing_fn(inputs):
            number = tf.strings.to_number(inputs["carrier"])
            return {{"number": {scaled}, "late": inputs["late"]}}
        """,
    )
    with pytest.raises(UserError) as caught:
        transform(workload, "numbers")
    assert "could not correctly convert string: " in str(caught.value)
    assert "(a value of `carrier`)" in str(caught.value)


def test_an_operation_that_fails_while_analyzing_is_told_in_a_line(
    new_workload, transform
):
    workload = new_workload(train=50, evaluation=20)
    workload.write_module(
        "analyzed",
        """
        import tensorflow as tf
        import tensorflow_transform as tft

        def preprocessing_fn(inputs):
            checked = tf.debugging.check_numerics(inputs["distance"] / 0.0, "too far")
            return {"distance": tft.scale_to_z_score(checked), "late": inputs["late"]}
        """,
    )
    with pytest.raises(UserError, match="its analyzers need: too far") as caught:
        transform(workload, "analyzed")
    assert len(str(caught.value)) < 250

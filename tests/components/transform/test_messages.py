"""What users read when `preprocessing_fn` makes no numbers of their columns."""

from __future__ import annotations

import math

import pytest

from strategos.components.errors import UserError


def test_a_cast_of_text_is_named_with_its_line_and_columns(new_workload, transform):
    workload = new_workload(train=5, evaluation=5)
    workload.write_module(
        "casts",
        """
        import tensorflow as tf

        def preprocessing_fn(inputs):
            flag = tf.cast(inputs["hour"], tf.float32)
            return {"x": tf.cast(inputs["carrier"], tf.float32) + flag,
                    "late": inputs["late"]}
        """,
    )
    with pytest.raises(UserError) as raised:
        transform(workload, "casts")
    text = str(raised.value)
    assert "casts.py:6: `tf.cast` makes no number of a text: `carrier`\n" in text
    assert "Correct the data, or" not in text


def test_columns_of_text_are_named_where_a_number_is_needed(new_workload, transform):
    workload = new_workload(train=5, evaluation=5)
    workload.write_module(
        "scaled",
        """
        import tensorflow_transform as tft

        def preprocessing_fn(inputs):
            return {"x": tft.scale_to_z_score(inputs["carrier"]),
                    "late": inputs["late"]}
        """,
    )
    with pytest.raises(UserError, match=r"Columns of text: `carrier`\. "):
        transform(workload, "scaled")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tf.py_function(abs, [x], tf.float32)", "line.py:6: `tf.py_function` and"),
        ("tf.numpy_function(abs, [x], tf.float32)", "call Python, which no SavedModel"),
        ("x if x > 3 else 0 * x", "is not allowed.\n    `preprocessing_fn` is called"),
        ("tf.constant(x.numpy())", "'numpy'\n    `preprocessing_fn` is called once"),
    ],
)
def test_what_a_graph_cannot_hold_is_named_before_the_training(
    new_workload, transform, value, message
):
    workload = new_workload(train=5, evaluation=5)
    workload.write_module(
        "line",
        f"""
        import tensorflow as tf

        def preprocessing_fn(inputs):
            x = inputs["distance"]
            x = tf.ensure_shape({value}, [None, 1])
            return {{"x": x, "late": inputs["late"]}}
        """,
    )
    with pytest.raises(UserError) as raised:
        transform(workload, "line")
    assert message in str(raised.value)


def test_a_feature_that_is_nan_is_named(new_workload, transform, monkeypatch):
    from strategos.components import events

    found = []
    monkeypatch.setattr(
        events, "emit", lambda kind, **fields: found.append((kind, fields))
    )
    workload = new_workload(train=20, evaluation=10)
    workload.write_module(
        "nan",
        """
        import tensorflow_transform as tft

        def preprocessing_fn(inputs):
            x = inputs["distance"] * 0.0
            return {"ratio": tft.scale_to_z_score(x / x), "late": inputs["late"]}
        """,
    )
    transform(workload, "nan")
    (warning,) = [fields["message"] for kind, fields in found if kind == "warning"]
    assert "NaN or infinite numbers, of 30 rows: `ratio` in 30." in warning


def test_rows_that_are_not_finite_are_counted_by_feature():
    import pyarrow as pa

    from strategos.components.transform.materialize import _not_finite

    rows = [[1.0], [math.nan, math.inf], [], [2.0, -math.inf], [3.0]]
    batch = pa.RecordBatch.from_pydict(
        {"x": pa.array(rows), "n": pa.array([[1]] * 5), "y": pa.array([[0.5]] * 5)}
    )
    assert _not_finite(batch) == {"x": 2}

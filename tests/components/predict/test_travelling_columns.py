"""Columns that the model does not have, beside the answers of their rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf


def feature(*values) -> tf.train.Feature:
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    texts = [value.encode() for value in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))


def test_text_of_tfrecord_is_the_text_that_it_is(predict, tmp_path, capsys):
    cities = ["Köln", "a,b", "b'x'"]
    with tf.io.TFRecordWriter(str(tmp_path / "rows.tfrecord")) as writer:
        for city in cities:
            features = {"carrier": feature("AA"), "hour": feature(3)}
            features |= {"id": feature(city), "words": feature("x", city)}
            made = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(made.SerializeToString())
    assert predict("rows.tfrecord", "--json") == 0
    answers = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [each["id"] for each in answers] == cities
    assert [each["words"] for each in answers] == [["x", city] for city in cities]


def test_bytes_that_are_no_text_are_shown_as_bytes(predict, tmp_path, capsys):
    rows = {"carrier": ["AA"], "hour": [3], "id": pa.array([b"\xff"])}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    assert predict("rows.parquet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == r"b'\xff'"


@pytest.mark.parametrize("name", ["predictions", "grid", "problem", "explanation"])
def test_a_column_with_the_name_of_an_output_is_rejected(
    predict, tmp_path, capsys, name
):
    (tmp_path / "rows.csv").write_text(f"carrier,hour,{name}\nAA,1,mine\n")
    assert predict("rows.csv") == 2
    said = capsys.readouterr().err
    assert f"rows.csv: the answers have a value `{name}`, too" in said
    assert f"Rename the column `{name}`, or leave it out" in said

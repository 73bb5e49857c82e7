"""Names of classes from Transform to `strategos predict`, through a real export."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import predict
from strategos.components.trainer.model import workload as loaded
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.run.export import export

SCHEMA = """
feature { name: "size" type: FLOAT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "color" type: BYTES value_count { min: 0 max: 1 } }
feature { name: "kind" type: BYTES presence { min_fraction: 1 }
          shape { dim { size: 1 } } DOMAIN }
"""
DOMAIN = 'string_domain { name: "kind" value: "cat" value: "dog" value: "élan" }'
PREPROCESSING = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    color = tft.sparse_tensor_to_dense_with_shape(inputs["color"], [None, 1], "")
    color = tft.compute_and_apply_vocabulary(color, vocab_filename="color")
    return {"size": inputs["size"], "color": color, "kind": kind(inputs["kind"])}

def kind(kind):
    KIND
"""
TABLE = """table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        ["dog", "élan", "cat"], tf.constant([0, 1, 2], tf.int64)), -1)
    return table.lookup(kind)"""
MODEL = """
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    outputs = tf.keras.layers.Dense(UNITS, "softmax")(inputs["size"])
    model = tf.keras.Model(inputs, outputs)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""


@pytest.fixture
def exported(workload_in, transform, spec_of, tmp_path):
    """Exports an untrained model of kinds: `exported(how, units, domain)`."""

    def make(kind, units=3, domain=""):
        workload = workload_in(tmp_path)
        for name in ("user", "schema"):
            (tmp_path / name).mkdir()
        (tmp_path / "schema" / "schema.pbtxt").write_text(
            SCHEMA.replace("DOMAIN", domain)
        )
        source = PREPROCESSING.replace("KIND", kind)
        workload.write_module("preprocessing", source)
        workload.write_module("model", MODEL.replace("UNITS", str(units)))
        for split in ("train", "eval"):
            _write(tmp_path / "raw" / f"Split-{split}")
        transform(workload, label="kind")
        spec = spec_of(workload, label="kind", batch_size=8, epochs=1)
        context = loaded.context(spec, 60, 1)
        model = UserModule(spec).build_model(context)
        folder = str(tmp_path / "exported")
        export(model, context, workload.schema, folder)
        return folder, model

    return make


def _write(folder):
    folder.mkdir(parents=True)
    kinds = ["cat"] * 10 + ["élan"] * 20 + ["dog"] * 30
    random.Random(1).shuffle(kinds)
    path = str(folder / "data_tfrecord-00000-of-00001.gz")
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for i, kind in enumerate(kinds):
            features = tf.train.Example()
            feature = features.features.feature
            feature["size"].float_list.value.append(i / 60)
            feature["color"].bytes_list.value.append(b"red" if i % 2 else b"blue")
            feature["kind"].bytes_list.value.append(kind.encode())
            writer.write(features.SerializeToString())


VOCABULARY = 'return tft.compute_and_apply_vocabulary(kind, vocab_filename="kind"'


@pytest.mark.parametrize(
    ("kind", "settings", "names"),
    [
        (f"{VOCABULARY})", {}, ["dog", "élan", "cat"]),
        (
            f"{VOCABULARY}, num_oov_buckets=1)",
            {"units": 4},
            ["dog", "élan", "cat", "3"],
        ),
        (TABLE, {"domain": DOMAIN}, ["dog", "élan", "cat"]),
    ],
)
def test_predict_answers_with_the_names_that_the_label_has(
    exported, kind, settings, names, tmp_path, capsys
):
    folder, model = exported(kind, **settings)
    rows = tmp_path / "rows.csv"
    rows.write_text("size,color\n0.5,red\n0.9,\n")
    answers = predict.predict(folder, rows)
    size = tf.constant([[0.5], [0.9]])
    color = tf.constant([[0], [-1]], tf.int64)
    expected = model({"size": size, "color": color}).numpy()
    for answer, row in zip(answers, expected, strict=True):
        assert list(answer["predictions"]) == names
        np.testing.assert_allclose(list(answer["predictions"].values()), row, rtol=1e-5)
    capsys.readouterr()  # TensorFlow prints what it exports
    predict.show(answers)
    line = capsys.readouterr().out.splitlines()[0]
    best = names[int(expected[0].argmax())]
    assert line.startswith(f"     1  predictions {best} {expected[0].max():.4f}, ")
    predict.show(answers, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == answers[0]


def test_classes_without_names_stay_numbers(exported):
    folder, _ = exported(TABLE)  # neither a vocabulary nor a domain says what they are
    answer = predict.predict(folder, [{"size": "0.5", "color": "red"}])[0]
    assert isinstance(answer["predictions"], list)


def test_of_many_classes_the_likeliest_are_shown(capsys):
    shares = {f"kind {i}": i / 21 for i in range(7)}
    predict.show([{"predictions": shares}])
    line = capsys.readouterr().out
    assert "predictions kind 6 0.2857, kind 5 0.2381, " in line
    assert line.endswith("kind 2 0.0952, and 2 more\n")

"""Names of classes from Transform to `strategos predict`, through a real export."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.predict import prediction
from strategos.components.trainer.model import workload as loaded
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.run import class_names
from strategos.components.trainer.run.export import export
from strategos.components.transformed.graph import TransformGraph

LABELS = ("counted", "reserved", "listed", "unnamed")


@pytest.fixture(scope="module")
def animals(workload_in, transform, tmp_path_factory):
    """Animals with their kind in four columns, each a label made in another way."""
    made = workload_in(tmp_path_factory.mktemp("animals"), "animals")
    for split in ("train", "eval"):
        _write(made.root / "raw" / f"Split-{split}")
    transform(made, label="counted")
    return made


@pytest.fixture
def context_of(animals, spec_of):
    """The spec and the context of a training: `context_of(label, units)`."""

    def make(label, units=3):
        spec = spec_of(
            animals,
            label=label,
            batch_size=8,
            epochs=1,
            hyperparameters={"units": units},
        )
        return spec, loaded.context(spec, 60, 1)

    return make


@pytest.fixture
def exported(context_of, tmp_path):
    """Exports an untrained model of kinds: `exported(label, units)`."""

    def make(label, units=3):
        spec, context = context_of(label, units)
        model = UserModule(spec).build_model(context)
        folder = str(tmp_path / "exported")
        export(model, context, spec.schema_file, folder)
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
            for label in LABELS:
                feature[label].bytes_list.value.append(f"{kind} {label}".encode())
            writer.write(features.SerializeToString())


@pytest.mark.parametrize("label", ["counted", "reserved", "listed"])
def test_names_are_those_that_the_label_has(context_of, label):
    _, context = context_of(label)
    names = [f"dog {label}", f"élan {label}", f"cat {label}"]
    graph = TransformGraph(context.transform_output)
    assert class_names.class_names(graph, context) == names


@pytest.mark.long
def test_predict_answers_with_the_names_that_the_label_has(exported, tmp_path, capsys):
    folder, model = exported("reserved", 4)
    names = ["dog reserved", "élan reserved", "cat reserved", "3"]
    rows = tmp_path / "rows.csv"
    rows.write_text("size,color\n0.5,red\n0.9,\n")
    answers = prediction.predict(folder, rows)
    size = tf.constant([[0.5], [0.9]])
    color = tf.constant([[0], [-1]], tf.int64)
    expected = model({"size": size, "color": color}).numpy()
    for answer, row in zip(answers, expected, strict=True):
        assert list(answer["predictions"]) == names
        np.testing.assert_allclose(list(answer["predictions"].values()), row, rtol=1e-5)
    capsys.readouterr()  # TensorFlow prints what it exports
    prediction.show(answers)
    line = capsys.readouterr().out.splitlines()[0]
    best = names[int(expected[0].argmax())]
    assert line.startswith(f"     1  predictions {best} {expected[0].max():.4f}, ")
    prediction.show(answers, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == answers[0]


@pytest.mark.long
def test_classes_without_names_stay_numbers(exported):
    folder, _ = exported("unnamed")  # in neither a vocabulary nor a domain
    answer = prediction.predict(folder, [{"size": "0.5", "color": "red"}])[0]
    assert isinstance(answer["predictions"], list)


def test_of_many_classes_the_likeliest_are_shown(capsys):
    shares = {f"kind {i}": i / 21 for i in range(7)}
    prediction.show([{"predictions": shares}])
    line = capsys.readouterr().out
    assert "predictions kind 6 0.2857, kind 5 0.2381, " in line
    assert line.endswith("kind 2 0.0952 and 2 more\n")

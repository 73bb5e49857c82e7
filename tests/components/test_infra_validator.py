from __future__ import annotations

import pytest

from strategos.components.errors import GateStoppedError

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def files(tf, tmp_path_factory):
    """Ten raw examples, as ExampleGen writes them."""
    folder = tmp_path_factory.mktemp("examples") / "Split-eval"
    folder.mkdir()
    path = str(folder / "data_tfrecord-00000-of-00001.gz")
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for value in range(10):
            example = tf.train.Example()
            example.features.feature["x"].float_list.value.append(value)
            writer.write(example.SerializeToString())
    return [path]


@pytest.fixture
def export(tf, tmp_path):
    """Saves `function(x)` as a model of serialized examples."""

    def save(function, signature="serving_default", key="examples", feature="x"):
        spec = {feature: tf.io.FixedLenFeature([1], tf.float32)}

        def answer(examples):
            return {"predictions": function(tf.io.parse_example(examples, spec)["x"])}

        module = tf.Module()
        wanted = tf.TensorSpec([None], tf.string, name=key)
        module.answer = tf.function(answer, input_signature=[wanted])
        folder = str(tmp_path / "model" / "Format-Serving")
        tf.saved_model.save(module, folder, signatures={signature: module.answer})
        return folder

    return save


def _probe(model, files, requests=64):
    from strategos.components.infra_validator.probe import probe

    return probe({"model": model, "files": files, "requests": requests})


def test_a_model_that_answers_every_example_passes(export, files):
    model = export(lambda x: x * 2)
    assert _probe(model, files) == {"answers": 10, "outputs": ["predictions"]}
    assert _probe(model, files, requests=4)["answers"] == 4


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda tf, x: tf.math.log(x - 5), "NaN or infinite `predictions` for 6 of 10"),
        (lambda tf, x: x[:1], r"shape \[1, 1\] for 10 examples, expected one answer"),
        (lambda tf, x: tf.ensure_shape(x, [3, 1]), "fails on real examples"),
    ],
)
def test_wrong_answers_stop_the_run(tf, export, files, function, message):
    model = export(lambda x: function(tf, x))
    with pytest.raises(GateStoppedError, match=message) as raised:
        _probe(model, files)
    assert "last good model keeps serving" in str(raised.value)


def test_a_model_that_needs_what_raw_examples_lack_stops_the_run(tf, export, files):
    spec = {"y": tf.io.FixedLenFeature([1], tf.float32)}
    module = tf.Module()
    wanted = tf.TensorSpec([None], tf.string, name="examples")
    module.answer = tf.function(
        lambda examples: tf.io.parse_example(examples, spec), input_signature=[wanted]
    )
    folder = export(lambda x: x)
    tf.saved_model.save(module, folder, signatures={"serving_default": module.answer})
    with pytest.raises(GateStoppedError, match=r"fails on real examples.*Feature: y"):
        _probe(folder, files)


def test_another_signature_stops_the_run(export, files):
    model = export(lambda x: x, signature="serve")
    with pytest.raises(
        GateStoppedError, match=r"no signature `serving_default`.*serve"
    ):
        _probe(model, files)


def test_another_input_stops_the_run(export, files):
    model = export(lambda x: x, key="instances")
    with pytest.raises(
        GateStoppedError, match=r"takes .*instances.*, expected `exampl"
    ):
        _probe(model, files)


def test_a_folder_without_a_model_stops_the_run(tmp_path, files):
    with pytest.raises(GateStoppedError, match="does not load"):
        _probe(str(tmp_path), files)


def _validate(model, files):
    from pathlib import Path

    from tfx.types import standard_artifacts

    from strategos.components.infra_validator.executor import Executor

    def artifact(kind, uri):
        made = kind()
        made.uri = str(uri)
        return made

    examples = artifact(standard_artifacts.Examples, Path(files[0]).parents[1])
    examples.split_names = '["eval"]'
    blessing = artifact(standard_artifacts.InfraBlessing, Path(model).parent / "b")
    Path(blessing.uri).mkdir()
    inputs = {
        "model": [artifact(standard_artifacts.Model, Path(model).parent)],
        "examples": [examples],
    }
    try:
        Executor().Do(inputs, {"blessing": [blessing]}, {"requests": 64})
    except GateStoppedError as error:
        return blessing, str(error)
    return blessing, None


def test_a_good_model_is_blessed_in_a_way_that_tfx_understands(export, files):
    from pathlib import Path

    from tfx.components.util import model_utils

    blessing, error = _validate(export(lambda x: x), files)
    assert error is None
    assert model_utils.is_infra_validated(blessing)
    assert [path.name for path in Path(blessing.uri).iterdir()] == ["INFRA_BLESSED"]


def test_a_bad_model_is_not_blessed_and_the_message_comes_from_the_process(
    tf, export, files
):
    from pathlib import Path

    from tfx.components.util import model_utils

    model = export(lambda x: tf.math.log(x - 5))
    blessing, error = _validate(model, files)
    assert f"The model {model} gives NaN or infinite" in error
    assert not model_utils.is_infra_validated(blessing)
    assert [path.name for path in Path(blessing.uri).iterdir()] == ["INFRA_NOT_BLESSED"]

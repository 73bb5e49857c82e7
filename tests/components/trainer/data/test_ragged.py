"""Ragged and sparse features from Transform through training to the served model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from strategos.components.trainer.data import dataset
from strategos.components.trainer.launchers import local
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.model import workload
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

pytestmark = pytest.mark.long

WORDS = ["bad", "dull", "fine", "great", "long", "new", "odd", "old", "slow", "été"]
ROWS, EVALUATED = 115, 40


def _example(generator: random.Random) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    words = generator.choices(WORDS, k=generator.randrange(6))
    late = generator.random() < 0.5
    words.insert(generator.randrange(len(words) + 1), "late" if late else "in time")
    feature["text"].bytes_list.value.append(" ".join(words).encode())
    lengths = [generator.randrange(3) for _ in range(generator.randrange(4))]
    feature["lengths"].int64_list.value.extend(lengths)
    feature["flat"].int64_list.value.extend(range(sum(lengths)))
    pairs = 2 * generator.randrange(3)
    feature["pairs_flat"].float_list.value.extend(
        generator.random() for _ in [0] * pairs
    )
    at = sorted(generator.sample(range(10), generator.randrange(4)))
    feature["at"].int64_list.value.extend(at)
    feature["of"].float_list.value.extend(generator.random() for _ in at)
    feature["late"].int64_list.value.append(int(late))
    return example.SerializeToString()


@pytest.fixture(scope="module")
def reviews(workload_in, transform, tmp_path_factory):
    import tensorflow as tf

    made = workload_in(tmp_path_factory.mktemp("reviews"), "ragged")
    generator = random.Random(1)
    for split, rows in (("train", ROWS), ("eval", EVALUATED)):
        (made.root / "raw" / f"Split-{split}").mkdir(parents=True)
        file = str(made.root / "raw" / f"Split-{split}" / "data-0.gz")
        with tf.io.TFRecordWriter(file, "GZIP") as writer:
            for _ in range(rows):
                writer.write(_example(generator))
    transform(made)
    return made


@pytest.fixture(scope="module")
def settings(reviews, spec_of):
    """The settings of a training: 7 batches of 16 and one of 3 in an epoch."""

    def make(**changes):
        given = {"label": "late", "batch_size": 16, "epochs": 8, **changes}
        return spec_of(reviews, **given)

    return make


@pytest.fixture(scope="module")
def trained(settings):
    spec = settings(distribution={"strategy": "one_device"})
    return spec, local.launch(spec, Operation())


def _spec(reviews):
    import tensorflow_transform as tft

    return tft.TFTransformOutput(reviews.graph).transformed_feature_spec()


@pytest.fixture
def expected(reviews):
    """The training features, parsed by TensorFlow with TFT's spec."""
    import tensorflow as tf

    files = list(reviews.transformed("train"))
    records = tf.data.TFRecordDataset(files, "GZIP").batch(ROWS)
    return tf.io.parse_example(next(iter(records)), _spec(reviews))


def _listed(value):
    """The values of each row, for any kind of tensor."""
    import tensorflow as tf

    if isinstance(value, tf.SparseTensor):
        found = [[] for _ in range(value.shape[0])]
        entries = zip(value.indices.numpy(), value.values.numpy(), strict=True)
        for (row, *place), entry in entries:
            found[row].append((place, entry))
        return found
    ragged = isinstance(value, tf.RaggedTensor)
    return value.to_list() if ragged else value.numpy().tolist()


@pytest.mark.parametrize("limit", [dataset.CACHE_LIMIT, 4096])
def test_batches_hold_the_rows_that_transform_wrote(reviews, expected, limit):
    import tensorflow as tf

    files = reviews.transformed("train")
    split = dataset.read(files, _spec(reviews), "late", cache_limit=limit)
    assert (split.columns is None) == (limit == 4096)
    kinds = {"words", "codes", "nested", "pairs"}
    wanted = {name: _listed(value) for name, value in expected.items()}
    seen = 0
    for features, label in split.ordered(16):
        rows = slice(seen, seen + len(label))
        for name, value in features.items():
            assert isinstance(value, tf.RaggedTensor) == (name in kinds)
            assert _listed(value) == wanted[name][rows], name
        seen += len(label)
    assert seen == ROWS
    assert any(wanted["codes"]) and any(wanted["wide"])
    order = []
    for features, _ in split.shuffled(16, seed=1, epochs=1, replicas=2, share=range(2)):
        order += features["words"].to_list()
    assert sorted(order) == sorted(expected["words"].to_list())
    assert order != expected["words"].to_list()


def test_a_model_learns_from_the_words(trained):
    _, facts = trained
    assert facts["history"]["loss"][-1] < 0.2
    assert facts["evaluation"]["loss"] < 0.2


@pytest.mark.parametrize(
    "distribution",
    [
        {"strategy": "mirrored", "devices": 2},
        {"strategy": "multi_worker_mirrored", "workers": 2},
    ],
)
def test_several_replicas_train_as_one_device(
    trained, settings, train_only, distribution
):
    facts = train_only(settings(distribution=distribution, epochs=1))
    wanted = pytest.approx(trained[1]["history"]["loss"][:1], abs=1e-5)
    assert facts["history"]["loss"] == wanted


def test_several_replicas_train_as_one_device_on_batches_of_similar_length(
    settings, train_only
):
    losses = {}
    for devices in (1, 2):
        distribution = {"strategy": "mirrored", "devices": devices}
        bucketed = {
            "distribution": distribution,
            "settings": Settings(bucket_by="words"),
        }
        facts = train_only(settings(**bucketed, epochs=2))
        losses[devices] = facts["history"]["loss"]
    assert losses[2] == pytest.approx(losses[1], abs=1e-5)


def test_the_served_model_answers_raw_rows_as_the_trained_one(trained, reviews):
    import numpy as np
    import tensorflow as tf

    spec, _ = trained
    split = workload.split(spec, spec.eval_files)
    model = UserModule(spec).build_model(workload.context(spec, ROWS, 1))
    saved_weights.read(model, f"{spec.model_dir}/Format-Weights/weights")
    features, label = split.sample(EVALUATED)
    expected = model(features, training=False)
    served = tf.saved_model.load(f"{spec.model_dir}/Format-Serving")
    raw = tf.data.TFRecordDataset(reviews.raw("eval"), "GZIP").batch(EVALUATED)
    (examples,) = raw
    answer = served.signatures["serving_default"](examples)["predictions"]
    np.testing.assert_allclose(answer, expected, atol=1e-6)
    assert ((answer.numpy() > 0.5) == label.numpy()).mean() > 0.9
    transformed = served.signatures["transform_features"](examples)
    for name in ("words", "codes", "cube"):
        assert _listed(transformed[name]) == _listed(features[name]), name
    described = Path(spec.model_dir) / "Format-Serving/assets.extra/serving.json"
    columns = ["at", "flat", "lengths", "of", "pairs_flat", "text"]
    assert json.loads(described.read_text())["features"] == columns

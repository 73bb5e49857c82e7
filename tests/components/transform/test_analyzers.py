"""The analysis on one machine, beside TFT's own on Beam, for any cut into shards."""

from __future__ import annotations

import gzip
import inspect
import itertools
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.errors import UserError
from strategos.components.shards.engine import Engine
from strategos.components.transform import analysis, preprocessing, raw
from strategos.components.transform.analyzers import spilled

WORKLOAD = Path(__file__).parents[2] / "workloads" / "analyzers"
ROWS = 90
SCHEMA = text_format.Parse(
    """
    feature { name: "x" type: FLOAT presence { min_fraction: 1 }
              shape { dim { size: 1 } } }
    feature { name: "w" type: FLOAT presence { min_fraction: 1 }
              shape { dim { size: 1 } } }
    feature { name: "pair" type: FLOAT presence { min_fraction: 1 }
              shape { dim { size: 2 } } }
    feature { name: "n" type: INT presence { min_fraction: 1 }
              shape { dim { size: 1 } } }
    feature { name: "key" type: BYTES presence { min_fraction: 1 }
              shape { dim { size: 1 } } }
    feature { name: "text" type: BYTES presence { min_fraction: 1 }
              shape { dim { size: 1 } } }
    feature { name: "several" type: FLOAT }
    feature { name: "tokens" type: BYTES }
    """,
    schema_pb2.Schema(),
)
_functions = itertools.count()
WORDS = [b"a", b"b", b"\xc3\xa9t\xc3\xa9", b"c d", b"", b"line\nend", b"zz"]


def _examples():
    """Rows whose sums of weights are exact; some are without values."""
    draw = np.random.default_rng(7)
    for number in range(ROWS):
        several = number % 4
        row = {
            "x": [draw.normal() * 10],
            "w": [draw.integers(1, 9) / 4],
            "pair": list(draw.normal(size=2)),
            "n": [int(draw.integers(-2, 5))],
            "key": [WORDS[draw.integers(4)]],
            "text": [b" ".join(WORDS[i] for i in draw.integers(0, 7, 4))],
            "several": list(draw.normal(size=several)),
            "tokens": [WORDS[i] for i in draw.integers(0, 7, several)],
        }
        example = tf.train.Example()
        for name, values in row.items():
            feature = example.features.feature[name]
            if values and isinstance(values[0], bytes):
                feature.bytes_list.value.extend(values)
            elif name == "n":
                feature.int64_list.value.extend(values)
            elif values:
                feature.float_list.value.extend(values)
        yield example.SerializeToString(deterministic=True)


@pytest.fixture(scope="module")
def rows():
    return list(_examples())


@pytest.fixture(scope="module")
def shards(rows, tmp_path_factory):
    """Files of the same rows, cut anywhere."""
    folder = tmp_path_factory.mktemp("shards")

    def cut(*places):
        ends = [*places, len(rows)]
        files = []
        for start, end in zip([0, *places], ends, strict=True):
            file = str(folder / f"{start}-{end}.gz")
            with tf.io.TFRecordWriter(file, "GZIP") as writer:
                for row in rows[start:end]:
                    writer.write(row)
            files.append(file)
        return files

    return cut


def _by_beam(function, files, folder):
    engine, schema = Engine(), raw.complete(SCHEMA)
    analysis._analyze(engine, function, files, schema, str(folder))
    return folder


def _by_us(function, files, folder, workers=1):
    analysis.analyze(Engine(workers=workers), function, files, SCHEMA, str(folder))
    return folder


def _vocabularies(folder):
    found = {}
    for path in sorted((folder / "transform_fn" / "assets").glob("*")):
        content = path.read_bytes()
        is_zipped = path.name.endswith(".gz")
        found[path.name] = gzip.decompress(content) if is_zipped else content
    return found


def _transformed(folder, rows):
    output = tft.TFTransformOutput(str(folder))
    spec = tft.tf_metadata.schema_utils.schema_as_feature_spec(SCHEMA).feature_spec
    found = output.transform_features_layer()(tf.io.parse_example(rows, spec))
    return {
        f"{name}/{n}": part.numpy()
        for name, value in found.items()
        for n, part in enumerate(tf.nest.flatten(value, expand_composites=True))
    }


def _described(folder):
    files = sorted((folder / "transformed_metadata").iterdir())
    return {file.name: file.read_text() for file in files}


# Sketches, TFT's L-moments, and means as text vary with the cut, on Beam too.
BY_CUT = ("keys", "nearly", "nearly_numbers", "tukey", "tukey_h", "gauss")


def _assert_equal(ours, theirs, rows, cut=False):
    found, expected = _vocabularies(ours), _vocabularies(theirs)
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert found[name] == content or (cut and name in BY_CUT), name
    found, expected = _transformed(ours, rows), _transformed(theirs, rows)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if cut and name.split("/")[0] in BY_CUT:
            continue
        if values.dtype == object:
            assert found[name].tolist() == values.tolist(), name
        else:
            np.testing.assert_allclose(found[name], values, 1e-6, 1e-6, err_msg=name)
    assert _described(ours) == _described(theirs)


def _scoped(function):
    """The function, with other names of tables than any earlier one in this process.

    TFT names tables by their place in the graph, and TensorFlow shares a table with all
    graphs that have its name: those that Beam keeps loaded, too.
    """
    scope = f"function_{next(_functions)}"

    def scoped(inputs):
        with tf.name_scope(scope):
            return function(inputs)

    return scoped


def _loaded(name):
    return _scoped(preprocessing.load(str(WORKLOAD), name, {}, {}))


@pytest.mark.parametrize(
    "name",
    [
        # Beam takes 5 to 20 s for each.
        pytest.param("of_numbers", marks=pytest.mark.faults),
        pytest.param("of_text", marks=pytest.mark.faults),
        pytest.param("of_nothing", marks=pytest.mark.faults),
        pytest.param("of_phases", marks=pytest.mark.long),
    ],
)
def test_results_are_those_of_tft_on_beam_for_any_cut_and_workers(
    shards, rows, tmp_path, name
):
    function = _loaded(name)
    theirs = _by_beam(function, shards(), tmp_path / "theirs")
    for workers, places in ((1, ()), (3, (1, 40, 80))):
        ours = tmp_path / f"ours-{workers}"
        _by_us(function, shards(*places), ours, workers)
        _assert_equal(ours, theirs, rows, cut=bool(places))
        assert sorted(path.name for path in ours.iterdir()) == [
            "metadata",
            "transform_fn",
            "transformed_metadata",
        ]


@pytest.mark.long
def test_vocabularies_on_disk_are_those_of_tft(shards, rows, tmp_path, monkeypatch):
    """The counts of each shard, and of each merge, are spilled."""

    def written(inputs):
        tokens, n = inputs["tokens"], inputs["n"]
        for number, options in enumerate(
            [
                {},
                {"store_frequency": True, "frequency_threshold": 15},
                {"frequency_threshold": 999},
                {"frequency_threshold": 999, "top_k": 2},
                {"top_k": 3, "reserved_tokens": ["zz", "new"]},
                {"reserved_tokens": ["zz", "new"], "file_format": "tfrecord_gzip"},
                {"fingerprint_shuffle": True},
                {"top_k": 1, "key_fn": _first, "coverage_top_k": 1},
            ]
        ):
            tft.vocabulary(tokens, vocab_filename=f"v{number}", **options)
        tft.vocabulary(n, vocab_filename="numbers", store_frequency=True)
        tft.vocabulary(
            inputs["key"],
            vocab_filename="sums",
            weights=inputs["w"],
            store_frequency=True,
            top_k=3,
        )
        size = tft.experimental.get_vocabulary_size_by_name("v0")
        return {"size": inputs["x"] * 0 + tf.cast(size, tf.float32)}

    theirs = _by_beam(_scoped(written), shards(), tmp_path / "theirs")
    spill, files = spilled.spill, []
    monkeypatch.setattr(spilled, "_LEAST", 0)
    monkeypatch.setattr(
        spilled, "spill", lambda *of: files.append(spill(*of)) or files[-1]
    )
    engine = Engine(workers=1, memory=0)
    ours = tmp_path / "ours"
    analysis.analyze(engine, _scoped(written), shards(30, 31), SCHEMA, str(ours))
    _assert_equal(ours, theirs, rows)
    assert len(files) >= 10 * 3
    assert not any(Path(file).exists() for file in files)


@pytest.mark.long
def test_vocabularies_by_labels_on_disk_are_those_of_tft(
    shards, rows, tmp_path, monkeypatch
):
    """The states of each shard, and of each merge, are spilled."""

    def written(inputs):
        words = tf.reshape(inputs["key"], [-1])
        labels = tf.reshape(tf.cast(inputs["x"] > 0, tf.int64), [-1])
        weights = tf.reshape(inputs["w"], [-1])
        numbers = tf.strings.to_hash_bucket_fast(words, 9)
        exact = {"min_diff_from_avg": 0.0, "store_frequency": True}
        for number, (values, options) in enumerate(
            [
                (words, exact),
                (words, {"weights": weights, **exact, "top_k": 2}),
                (words, {"use_adjusted_mutual_info": True, "top_k": 3}),
                (words, {"frequency_threshold": 15, **exact}),
                (words, {"frequency_threshold": 999, "top_k": 2}),
                (words, {"reserved_tokens": ["zz"], **exact}),
                (words, {"fingerprint_shuffle": True}),
                (numbers, exact),
            ]
        ):
            tft.vocabulary(
                values, labels=labels, vocab_filename=f"v{number}", **options
            )
        size = tft.experimental.get_vocabulary_size_by_name("v0")
        return {"size": inputs["x"] * 0 + tf.cast(size, tf.float32)}

    theirs = _by_beam(_scoped(written), shards(), tmp_path / "theirs")
    write, files = spilled.write, []
    monkeypatch.setattr(spilled, "_LEAST", 0)
    monkeypatch.setattr(
        spilled, "write", lambda *of: files.append(write(*of)) or files[-1]
    )
    ours = tmp_path / "ours"
    engine = Engine(workers=1, memory=0)
    analysis.analyze(engine, _scoped(written), shards(30, 31), SCHEMA, str(ours))
    _assert_equal(ours, theirs, rows)
    assert len(files) >= 8 * 3


def test_analyzers_in_another_order_at_each_trace_are_rejected(shards, tmp_path):
    order = itertools.cycle([("x", "w"), ("w", "x")])

    def function(inputs):
        return {name: tft.scale_to_z_score(inputs[name]) for name in next(order)}

    with pytest.raises(UserError, match="does not call its analyzers in the same ord"):
        _by_us(function, shards(), tmp_path)


def _first(token):
    return token[:1]


def test_each_operation_of_tft_is_computed_here():
    """A new one fails this test, and would go to Beam until it is computed here."""
    from strategos.components.transform.analyzers import operations, tft_private

    modules = tft_private.analyzer_nodes, tft_private.beam_nodes
    kinds = {
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, tft_private.nodes.OperationDef)
        and each.__module__ == module.__name__
        and not inspect.isabstract(each)
    }
    of_beam = {"PTransform"}  # the user's own, see below
    with_cache = {"EncodeCache", "DecodeCache", "InstrumentDatasetCache"}
    replaced = {"TensorSource"}  # by ExtractFromDict
    names = {each.__name__ for each in kinds - operations.OPERATIONS.keys()}
    assert names == of_beam | with_cache | replaced
    assert len(operations.OPERATIONS) == 25


class Largest(beam.PTransform):
    """A user's analyzer."""

    def expand(self, batches):
        largest = batches | beam.Map(lambda batch: float(batch[0].max()))
        return largest | beam.CombineGlobally(max)


@pytest.mark.long
def test_a_transform_of_the_users_goes_to_beam_and_is_told(
    shards, rows, tmp_path, monkeypatch
):
    def function(inputs):
        (largest,) = tft.experimental.ptransform_analyzer(
            [inputs["x"]], Largest(), [tf.float32], [[]]
        )
        return {"x": tft.scale_to_0_1(inputs["x"]), "y": inputs["x"] / largest}

    said = []
    monkeypatch.setattr(analysis.events, "emit", lambda *a, **event: said.append(event))
    found = _transformed(_by_us(function, shards(), tmp_path / "ours"), rows)
    assert found["y/0"].max() == 1
    (note,) = said
    assert note["message"] == (
        "analyzing on Beam in one thread, as PTransform[ptransform] runs only there"
    )


def _mappers():
    """Mappers and what they make of a column, by what they take."""
    texts = st.sampled_from(
        [
            lambda x: tf.strings.as_string(tft.bucketize(x, 3)),
            lambda x: tf.strings.as_string(tf.round(x / 5)),
        ]
    )
    numbers = st.sampled_from(
        [
            tft.scale_to_z_score,
            tft.scale_to_0_1,
            lambda x: tft.scale_by_min_max(x, -1, 1),
            lambda x: x - tft.quantiles(x, 3, 0.01)[0, 0],
            lambda x: x / (1 + tf.cast(tft.size(x), tf.float32)),
        ]
    )
    ends = st.sampled_from(
        [
            lambda x, n: tft.compute_and_apply_vocabulary(x, num_oov_buckets=n),
            lambda x, n: tft.compute_and_apply_vocabulary(x, top_k=n + 1),
            lambda x, n: tft.hash_strings(x, n + 1),
        ]
    )
    return st.lists(
        st.tuples(
            st.sampled_from(["x", "w"]),
            st.lists(numbers, max_size=3),
            texts,
            ends,
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=3,
    )


@pytest.mark.faults
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(_mappers(), st.lists(st.integers(1, ROWS - 1), max_size=3, unique=True))
def test_any_composition_of_mappers_gives_what_it_gives_on_beam(
    shards, rows, tmp_path_factory, mapped, places
):
    @_scoped
    def function(inputs):
        outputs = {}
        for number, (name, numbers, text, end, size) in enumerate(mapped):
            value = inputs[name]
            for each in numbers:
                value = each(value)
            outputs[f"{number}"] = value
            outputs[f"{number}_text"] = end(text(value), size)
        return outputs

    folder = tmp_path_factory.mktemp("composed")
    theirs = _by_beam(function, shards(), folder / "theirs")
    ours = _by_us(function, shards(*sorted(places)), folder / "ours", workers=2)
    _assert_equal(ours, theirs, rows)

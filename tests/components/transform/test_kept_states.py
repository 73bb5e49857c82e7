"""An analysis with the states that earlier runs kept, beside one of all rows."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.records import columns, encode, splits
from strategos.components.shards.engine import Engine
from strategos.components.transform import STATES_VARIABLE, analysis, preprocessing
from strategos.components.transform.analyzers import kept_states, phase

WORKLOAD = Path(__file__).parents[2] / "workloads" / "analyzers"
WORDS = [b"a", b"b", b"\xc3\xa9t\xc3\xa9", b"c d", b"", b"line\nend", b"zz"]
ROWS = 40  # of a span
ONE = "presence { min_fraction: 1 } shape { dim { size: 1 } }"
TWO = ONE.replace("size: 1", "size: 2")
SCHEMA = text_format.Parse(
    f"""
    feature {{ name: "x" type: FLOAT {ONE} }} feature {{ name: "w" type: FLOAT {ONE} }}
    feature {{ name: "pair" type: FLOAT {TWO} }} feature {{ name: "n" type: INT {ONE} }}
    feature {{ name: "key" type: BYTES {ONE} }}
    feature {{ name: "text" type: BYTES {ONE} }}
    feature {{ name: "several" type: FLOAT }} feature {{ name: "tokens" type: BYTES }}
    """,
    schema_pb2.Schema(),
)
LISTS = {"pair", "several", "tokens"}
_functions = itertools.count()


def batch_of(span):
    draw = np.random.default_rng(span)
    several = [number % 4 for number in range(ROWS)]

    def lists(kind, draw_values, lengths=(1,) * ROWS):
        return pa.array([draw_values(n) for n in lengths], pa.list_(kind))

    def numbers(n):
        return list(draw.normal(size=n) * 10)

    def words(n):
        return [WORDS[i] for i in draw.integers(0, 7, n)]

    return pa.RecordBatch.from_pydict(
        {
            "x": lists(pa.float32(), numbers),
            "w": lists(pa.float32(), lambda n: list(draw.random(n))),
            "pair": lists(pa.float32(), numbers, (2,) * ROWS),
            "n": lists(pa.int64(), lambda n: list(draw.integers(-2, 5, n))),
            "key": lists(pa.binary(), lambda n: [WORDS[draw.integers(4)]]),
            "text": lists(pa.binary(), lambda n: [b" ".join(words(4))]),
            "several": lists(pa.float32(), numbers, several),
            "tokens": lists(pa.binary(), words, several),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of a number of spans, each of its own rows: `.arrow` or `.gz`."""

    def written(spans, suffix):
        folder = str(tmp_path_factory.mktemp("examples"))
        found = []
        for place, span in enumerate(spans):
            writer, batch = splits.SplitWriter(folder, place), batch_of(span)
            writer.write(encode.serialize(batch), columns.compact(batch, LISTS))
            found.append(writer.close())
        for each in found[1:]:
            found[0] = splits.merged(found[0], each)
        splits.publish(folder, {"train": found[0]})
        return sorted(str(path) for path in Path(folder).rglob(f"*{suffix}"))

    return written


@pytest.fixture
def kept(tmp_path, monkeypatch):
    folder = tmp_path / "states"
    monkeypatch.setenv(STATES_VARIABLE, str(folder))
    return folder


@pytest.fixture
def analyze(tmp_path, monkeypatch):
    """Analyzes files, and returns the output with the number of files that it read."""
    numbers, read = itertools.count(), []
    batches = phase.raw.batches
    monkeypatch.setattr(
        phase.raw, "batches", lambda *of: read.append(of[0]) or batches(*of)
    )

    def call(function, files, workers=1):
        read.clear()
        contents = {
            file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files
        }
        folder = str(tmp_path / f"graph-{next(numbers)}")
        function = scoped(function)
        engine = Engine(workers=workers)
        analysis.analyze(engine, function, files, SCHEMA, folder, contents)
        return output(folder), len(read)

    return call


def scoped(function):
    """The function, in a scope of its own: TensorFlow shares tables by their names."""

    def called(inputs):
        with tf.name_scope("same"):
            return function(inputs)

    return called


def output(folder):
    """The files besides the graph, and what the graph makes of rows, bit by bit."""
    texts = {
        str(path.relative_to(folder)): path.read_bytes()
        for place in ("transform_fn/assets", "transformed_metadata", "metadata")
        for path in sorted(Path(folder, place).glob("*"))
    }
    spec = tft.tf_metadata.schema_utils.schema_as_feature_spec(SCHEMA).feature_spec
    rows = tf.io.parse_example(encode.serialize(batch_of(99)).to_pylist(), spec)
    layer = tft.TFTransformOutput(folder).transform_features_layer()
    values = {
        f"{name}/{n}": part.numpy()
        for name, value in layer(rows).items()
        for n, part in enumerate(tf.nest.flatten(value, expand_composites=True))
    }
    made = {
        name: value.tolist() if value.dtype == object else value.tobytes()
        for name, value in values.items()
    }
    return texts, made


def z_scores(inputs, factor=1.0):
    return {"x": tft.scale_to_z_score(inputs["x"] * factor)}


def of_several_kinds(inputs):
    months = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5.0, 7.0])), -1.0
    )
    x, tokens = inputs["x"], inputs["tokens"]
    tft.vocabulary(inputs["key"], vocab_filename="sums", weights=inputs["w"])
    return {
        "z": tft.scale_to_z_score(tf.where(x > 0, x, x / 3)),
        "ids": tft.compute_and_apply_vocabulary(tokens, vocab_filename="ids"),
        "bucket": tft.bucketize(x, 4),
        "looked_up": tft.scale_to_0_1(months.lookup(inputs["key"])),
        "scaled": tft.scale_to_z_score(x - tft.mean(x)),
    }


@pytest.mark.parametrize("suffix", [".arrow", ".gz"])
def test_a_new_span_is_analyzed_alone(files, kept, analyze, monkeypatch, suffix):
    """One span is new, one has left the window."""
    before, spans = files([0, 1, 2], suffix), files([1, 2, 3], suffix)
    _, read = analyze(of_several_kinds, before)
    assert read == 2 * 3  # in two phases
    found, read = analyze(of_several_kinds, spans)
    assert read == 1 + 3  # the mean of all rows is another one
    again, read = analyze(of_several_kinds, spans)
    assert read == 0
    monkeypatch.delenv(STATES_VARIABLE)
    whole, read = analyze(of_several_kinds, spans)
    assert read == 2 * 3
    assert found == whole == again


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".arrow", ".gz"])
@pytest.mark.parametrize("name", ["of_numbers", "of_text", "of_nothing", "of_phases"])
def test_each_analyzer_gives_what_it_gives_of_all_rows(
    files, kept, analyze, monkeypatch, name, suffix
):
    function = preprocessing.load(str(WORKLOAD), name, {}, {})
    analyze(function, files([0, 1, 2], suffix))
    spans = files([0, 3, 1, 2], suffix)
    found, read = analyze(function, spans, workers=2)
    monkeypatch.delenv(STATES_VARIABLE)
    whole, of_all = analyze(function, spans)
    assert found == whole
    assert 0 < read < of_all


def _mappers():
    """Compositions of mappers, with the column that each begins with."""
    numbers = st.sampled_from(
        [
            tft.scale_to_z_score,
            tft.scale_to_0_1,
            lambda x: x - tft.quantiles(x, 3, 0.01)[0, 0],
            lambda x: tf.cond(tf.size(x) > 9, lambda: x * 2, lambda: x / 3),
            lambda x: x / (1 + tf.cast(tft.size(x), tf.float32)),
            lambda x: tf.cast(tft.bucketize(x, 3), tf.float32),
        ]
    )
    texts = st.sampled_from(
        [
            lambda x: tft.compute_and_apply_vocabulary(x, num_oov_buckets=1),
            lambda x: tft.compute_and_apply_vocabulary(x, top_k=3),
            lambda x: tft.hash_strings(x, 5),
        ]
    )
    column = st.sampled_from(["x", "w"])
    of_column = st.tuples(column, st.lists(numbers, min_size=1, max_size=3), texts)
    return st.lists(of_column, min_size=1, max_size=3)


SPANS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


@pytest.mark.long
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(_mappers(), SPANS, SPANS, st.sampled_from([".arrow", ".gz"]))
def test_any_composition_of_mappers_over_any_spans_gives_what_all_rows_give(
    files, kept, analyze, mapped, earlier, spans, suffix
):
    def function(inputs):
        outputs = {}
        for number, (name, numbers, end) in enumerate(mapped):
            value = inputs[name]
            for each in numbers:
                value = each(value)
            outputs[f"{number}"] = value
            outputs[f"{number}_text"] = end(tf.strings.as_string(value))
        return outputs

    analyze(function, files(earlier, suffix))
    found, _ = analyze(function, files(spans, suffix))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(STATES_VARIABLE)
        assert analyze(function, files(spans, suffix))[0] == found


class Harmful:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_other_functions_and_damaged_states_are_analyzed_again(
    files, kept, analyze, monkeypatch, tmp_path
):
    spans = files([0, 1], ".arrow")
    expected, _ = analyze(z_scores, spans)
    assert analyze(z_scores, spans) == (expected, 0)
    assert analyze(lambda inputs: z_scores(inputs, 2.0), spans)[1] == 2
    assert analyze(lambda inputs: {"x": tft.scale_to_0_1(inputs["x"])}, spans)[1] == 2
    buckets = [
        lambda inputs, n=n: {"x": tft.bucketize(inputs["x"], 3, epsilon=n)}
        for n in (0.1, 0.2)
    ]
    assert [analyze(each, spans)[1] for each in (*buckets, buckets[0])] == [2, 2, 0]
    monkeypatch.setattr(kept_states, "_PACKAGES", ("numpy",))
    assert analyze(z_scores, spans) == (expected, 2)
    assert analyze(z_scores, spans) == (expected, 0)
    states = {path: path.read_bytes() for path in kept.iterdir()}
    content = pickle.dumps(Harmful(tmp_path / "made"))
    for path, whole in states.items():
        header, _, _ = whole.partition(b"\n")
        path.write_bytes(header + b"\n" + content)
    assert analyze(z_scores, spans) == (expected, 2)
    for path, whole in states.items():
        path.write_bytes(whole[:-1])
    assert analyze(z_scores, spans) == (expected, 2)
    assert analyze(z_scores, spans) == (expected, 0)
    assert not (tmp_path / "made").exists()


def in_init_scope(path):
    with tf.init_scope():
        return table_of(path)


def table_of(path):
    kinds = tf.lookup.TextFileIndex
    lines = tf.string, kinds.WHOLE_LINE, tf.int64, kinds.LINE_NUMBER
    return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *lines), -1)


READ_OUTSIDE = {
    "table": lambda key, path: table_of(path).lookup(key),
    "eager table": lambda key, path: in_init_scope(path).lookup(key),
    "vocabulary": lambda key, path: tft.apply_vocabulary(key, tf.constant(path)),
    "file": lambda key, path: (
        tf.strings.length(key) * tf.strings.length(tf.io.read_file(path))
    ),
    "Python": lambda key, path: tf.py_function(
        lambda x: tf.strings.length(x) * len(Path(path).read_bytes()), [key], tf.int32
    ),
    "random": lambda key, path: (
        tf.strings.length(key) * tf.random.uniform([], 1, 1 << 20, tf.int32)
    ),
}


@pytest.mark.parametrize("kind", READ_OUTSIDE)
def test_what_reads_outside_of_the_graph_is_analyzed_again(
    files, kept, analyze, tmp_path, kind
):
    def function(inputs):
        value = READ_OUTSIDE[kind](inputs["key"], str(path))
        value = tf.ensure_shape(tf.cast(value, tf.float32), [None, 1])
        return {"x": value - tft.mean(value)}

    path, spans = tmp_path / "words.txt", files([0, 1], ".arrow")
    found = []
    for text in ("a\nb\n", "b\nc d\na\n"):
        path.write_text(text)
        made, read = analyze(function, spans)
        assert read == 2
        found.append(made)
    # Random numbers follow the seed of the process, which other tests may set.
    assert kind == "random" or found[0] != found[1]
    assert not kept.exists()


def test_states_on_disk_or_of_many_bytes_are_not_kept(
    files, kept, analyze, monkeypatch
):
    def function(inputs):
        return {"ids": tft.compute_and_apply_vocabulary(inputs["tokens"])}

    spans = files([0, 1], ".arrow")
    with monkeypatch.context() as patch:
        patch.setattr(kept_states, "_OF_SHARD", 100)
        expected, _ = analyze(function, spans)
        patch.setattr(kept_states, "_OF_SHARD", 1 << 20)
        patch.setattr("strategos.components.transform.analyzers.spilled._LEAST", 0)
        patch.setattr(phase.Rows, "bytes", 0)
        assert analyze(function, spans) == (expected, 2)
    assert not kept.exists()
    monkeypatch.setattr(kept_states, "_MOST_FILES", 3)  # of two phases, two spans
    assert analyze(function, spans) == (expected, 2)
    assert not kept.exists()

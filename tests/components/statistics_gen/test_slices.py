"""Statistics by slice, with weights and of a sample: those that TFDV computes."""

from __future__ import annotations

import itertools
import json
import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

LISTS = {
    "carrier": pa.binary(),
    "tags": pa.binary(),
    "month": pa.int64(),
    "delay": pa.float32(),
    "many": pa.float32(),
    "w": pa.float32(),
}
CELLS = {
    "carrier": st.none() | st.lists(st.sampled_from([b"AA", b"b_1", b""]), max_size=1),
    "tags": st.none() | st.lists(st.sampled_from([b"x", b"y", "ü".encode()])),
    "month": st.lists(st.integers(-1, 2), min_size=1, max_size=1),
    "delay": st.none()
    | st.lists(
        st.sampled_from([0.0, 0.1, -2.5, float("nan"), 700.0]), min_size=1, max_size=1
    ),
    "many": st.none() | st.lists(st.floats(-9, 9, width=32), max_size=5),
    "w": st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=1, max_size=1),
}


def table(rows):
    """Rows as columns of decoded tf.Examples."""
    arrays = []
    for name, kind in LISTS.items():
        cells = [row[name] for row in rows]
        value = pa.large_binary() if kind == pa.binary() else kind
        arrays.append(pa.array(cells, pa.large_list(value)))
    return pa.RecordBatch.from_arrays(arrays, list(LISTS))


def computed(batches_of_shards, **fields):
    """Our statistics by slice; shards come from other processes, and are merged."""
    from strategos.components.evaluation.slices.slicing import Slicing
    from strategos.components.statistics_gen.request import Request

    fields["slices"] = tuple(map(Slicing.of, fields.get("slices", ())))
    request = Request(**fields)
    parts = [
        pickle.loads(pickle.dumps(request.accumulated(batches, "train", shard)))
        for shard, batches in enumerate(batches_of_shards)
    ]
    while len(parts) > 1:
        later = parts.pop()
        parts[-1] = parts[-1].merge(later)
    return {each.name: each for each in parts[0].extracted().datasets}


def theirs(batch, features=(), weight=None):
    """TFDV's statistics by slice."""
    from tensorflow_data_validation import StatsOptions
    from tensorflow_data_validation.statistics import stats_impl
    from tensorflow_data_validation.utils import slicing_util

    options = StatsOptions(weight_feature=weight)
    slicers = [slicing_util.default_slicer]
    for each in features:
        names = each if isinstance(each, list) else [each]
        slicers.append(slicing_util.get_feature_value_slicer(dict.fromkeys(names)))
    found = {}
    for name, rows in slicing_util.generate_slices(batch, slicers):
        (dataset,) = stats_impl.generate_statistics_in_memory(rows, options).datasets
        found[name if features else ""] = dataset
    return found


def assert_equal(ours, expected):
    """By feature, but for sketches; sums of floats may differ by rounding."""
    assert ours.keys() == expected.keys()
    for name, wanted in expected.items():
        found = ours[name]
        assert found.num_examples == wanted.num_examples, name
        assert found.weighted_num_examples == pytest.approx(
            wanted.weighted_num_examples
        )
        pairs = [{x.path.step[0]: x for x in each.features} for each in (found, wanted)]
        assert pairs[0].keys() == pairs[1].keys()
        for feature, theirs in pairs[1].items():
            assert_close(pairs[0][feature], theirs, f"{name}: {feature}")


def assert_close(ours, wanted, where, path=""):
    for field, value in wanted.ListFields():
        here = f"{path}.{field.name}"
        found = getattr(ours, field.name)
        if field.name in ("custom_stats", "path") or "quantiles" in here:
            continue
        if field.name == "num_values_histogram":
            continue
        if field.label == field.LABEL_REPEATED:
            assert len(found) == len(value), (where, here)
            for mine, other in zip(found, value, strict=True):
                if hasattr(other, "ListFields"):
                    assert_close(mine, other, where, here)
        elif field.type == field.TYPE_MESSAGE:
            assert_close(found, value, where, here)
        else:
            if not isinstance(value, str):
                # With NumPy 2, TFDV computes histograms of float32 in float32.
                rel, least = (1e-5, 1e-3) if "buckets" in here else (1e-6, 1e-9)
                value = pytest.approx(value, nan_ok=True, rel=rel, abs=least)
            assert found == value, (where, here)
    known = {field.name for field, _ in wanted.ListFields()}
    for field, value in ours.ListFields():
        if field.name not in known and field.name != "custom_stats":
            least = 1e-3 if "buckets" in path else 1e-9
            assert value == pytest.approx(0, abs=least), (where, path, field.name)


ROWS = st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=40)


@settings(max_examples=15, deadline=None, database=None)
@given(ROWS, st.data())
def test_slices_and_weights_are_those_of_tfdv_in_any_cut(rows, data):
    batch = table(rows)
    features = data.draw(
        st.lists(
            st.sampled_from(["carrier", "tags", "month", "delay", ["tags", "month"]]),
            unique_by=str,
            max_size=3,
        )
    )
    weight = data.draw(st.sampled_from(["", "w"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = [0, *cuts, len(rows)]
    cut = [
        [batch.slice(low, high - low)] if high > low else []
        for low, high in itertools.pairwise(bounds)
    ]
    ours = computed(cut, slices=features, weight=weight)
    assert_equal(ours, theirs(batch, features, weight or None))


def columns(**cells):
    """A batch of decoded tf.Examples; a cell is a list of values, or None."""
    arrays = [pa.array(*each) for each in cells.values()]
    return pa.RecordBatch.from_arrays(arrays, list(cells))


TEXTS, NUMBERS = pa.large_list(pa.large_binary()), pa.large_list(pa.float32())


def test_bins_and_crosses_have_the_rows_of_their_names():
    cells = [[x] for x in (0.0, 499.5, 500.0, 1e9, float("nan"))]
    batch = columns(
        distance=([*cells, None], NUMBERS),
        origin=([[b"JFK"]] * 5 + [[b"\xff"]], TEXTS),
    )
    bins = {"feature": "distance", "bins": [500]}
    found = computed([[batch]], slices=[bins, ["origin", bins], "origin"])
    assert {name: each.num_examples for name, each in found.items()} == {
        "All Examples": 6,
        "distance_[-inf, 500)": 2,
        "distance_[500, inf]": 2,
        "distance_nan": 1,
        "distance_[-inf, 500)_origin_JFK": 2,
        "distance_[500, inf]_origin_JFK": 2,
        "distance_nan_origin_JFK": 1,
        "origin_JFK": 5,
        r"origin_\xff": 1,
    }


def test_a_column_with_too_many_values_is_rejected_by_name(monkeypatch):
    from strategos.components.errors import UserError
    from strategos.components.statistics_gen import slices

    monkeypatch.setattr(slices, "MOST_SLICES", 3)
    fine, more = (
        [columns(x=([[str(i).encode()] for i in some], TEXTS))]
        for some in (range(3), range(2, 4))
    )
    assert len(computed([fine, fine], slices=["x"])) == 4
    for shards in ([fine, more], [fine + more], [[fine[0], more[0]]]):
        with pytest.raises(UserError, match="`x`") as caught:
            computed(shards, slices=["x"])
        assert caught.value.key == "statistics.slices"


def test_two_slices_of_one_name_are_rejected_not_mixed():
    from strategos.components.errors import UserError

    batch = columns(
        a=([[b"1"], [b"1_b_2"]], TEXTS),
        b=([[b"2_b_3"], [b"3"]], TEXTS),
        a_1=([[b"b_2"], [b"x"]], TEXTS),
    )
    with pytest.raises(UserError, match="a_1_b_2_b_3"):
        computed([[batch]], slices=[["a", "b"]])
    with pytest.raises(UserError, match="`a` and `a_1`.*`a_1_b_2`"):
        computed([[batch]], slices=["a", "a_1"])


@pytest.mark.parametrize(
    ("cells", "received"),
    [
        ([[1.0], [float("nan")]], "nan as `w`"),
        ([[1.0], [-2.0]], "-2 as `w`"),
        ([[1.0], None], "no value as `w`"),
        ([[1.0], [1.0, 2.0]], "2 values as `w`"),
        (None, "no value as `w`"),
        ([[b"1"], [b"1"]], "a text as `w`"),
    ],
)
def test_a_row_without_a_weight_is_rejected(cells, received):
    from strategos.components.errors import UserError

    given = {"x": ([[1.0], [2.0]], NUMBERS)}
    if cells:
        is_text = isinstance(cells[0][0], bytes)
        given["w"] = (cells, TEXTS if is_text else NUMBERS)
    with pytest.raises(UserError, match=received) as caught:
        computed([[columns(**given)]], weight="w")
    assert caught.value.key == "weight"
    assert "split train" in caught.value.received


def test_rows_that_weigh_nothing_are_counted_unweighted():
    batch = columns(
        x=([[1.0], [3.0]], NUMBERS), s=([[b"a"]] * 2, TEXTS), w=([[0.0]] * 2, NUMBERS)
    )
    (dataset,) = computed([[batch]], weight="w").values()
    assert (dataset.num_examples, dataset.weighted_num_examples) == (2, 0)
    x, s, _ = dataset.features
    assert x.num_stats.mean == 2 and not x.num_stats.weighted_numeric_stats.histograms
    assert s.string_stats.top_values[0].frequency == 2
    assert not s.string_stats.weighted_string_stats.top_values


def test_weights_of_more_values_than_fit_are_bounded_by_their_error(monkeypatch):
    from strategos.components.statistics import value_counts

    monkeypatch.setattr(value_counts, "EXACT_VALUES", 64)
    draw = np.random.default_rng(0)
    values = draw.zipf(1.3, 5000).astype(str)
    weights = draw.random(5000).astype(np.float32)
    batches = [
        columns(
            s=([[x.encode()] for x in values[i : i + 500]], TEXTS),
            w=([[x] for x in weights[i : i + 500]], NUMBERS),
        )
        for i in range(0, 5000, 500)
    ]
    (dataset,) = computed([[each] for each in batches], weight="w").values()
    (s,) = (x for x in dataset.features if x.path.step[0] == "s")
    custom = {each.name: each.num for each in s.custom_stats}
    error = custom["weighted_top_values_error"]
    top = s.string_stats.weighted_string_stats.top_values
    assert error > 0 and len(top) > 0
    for each in top:
        true = weights[values == each.value].sum()
        assert each.frequency <= true + 1e-3 and true <= each.frequency + error + 1e-3


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """An Examples artifact with several shards of files in split train."""
    from tfx.types import standard_artifacts

    from strategos.components.data_files.values.features import convert
    from strategos.components.data_files.values.kinds import Kind
    from strategos.components.records import counts
    from strategos.components.records.encode import serialize
    from strategos.components.records.write import ShardWriter, Written, publish

    artifact = standard_artifacts.Examples()
    artifact.uri = str(tmp_path_factory.mktemp("examples"))
    artifact.split_names = '["train", "eval"]'
    draw = random.Random(4)
    for split, files in (("train", 12), ("eval", 1)):
        written = Written()
        for file in range(files):
            batch = pa.RecordBatch.from_pydict(
                {
                    # Never missing: a batch of TFX's without any value has slices
                    # of its own (`carrier_None`).
                    "carrier": draw.choices(["AA", "UA"], k=200),
                    "delay": draw.choices([None, 0.5, 2.0, -4.0], k=200),
                    "seats": draw.choices([1, 2, 8], k=200),
                }
            )
            kinds = {"carrier": Kind.BYTES, "delay": Kind.FLOAT, "seats": Kind.INT}
            writer = ShardWriter(artifact.uri, file)
            writer.write(serialize(convert(batch, kinds)))
            written = written.merge(writer.close())
        publish(artifact.uri, f"Split-{split}", written)
        counts.record(artifact, split, 200 * files)
    return artifact


def written(examples, folder, **request):
    """The artifact of DetailedStatistics."""
    from tfx.types import standard_artifacts

    from strategos.components.statistics_gen import executor

    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(folder)
    executor.Executor().Do(
        {"examples": [examples]},
        {"statistics": [artifact]},
        {"request": json.dumps(request)},
    )
    return artifact


def loaded(artifact, split="train"):
    from tfx.components.statistics_gen import stats_artifact_utils

    return stats_artifact_utils.load_statistics(artifact, split)


@pytest.mark.long
def test_the_artifact_is_that_of_tfx_with_the_same_options(examples, tmp_path):
    """TFX's executor gets TFDV's options; its readers find our slices."""
    import tensorflow_data_validation as tfdv
    from tfx.components.statistics_gen import executor as stock
    from tfx.types import standard_artifacts
    from tfx_bsl.public.proto import slicing_spec_pb2

    config = slicing_spec_pb2.SlicingConfig()
    config.slicing_specs.add(feature_keys=["carrier"])
    config.slicing_specs.add(feature_keys=["seats", "carrier"])
    options = tfdv.StatsOptions(slicing_config=config, weight_feature="seats")
    other = standard_artifacts.ExampleStatistics()
    other.uri = str(tmp_path / "stock")
    stock.Executor().Do(
        {"examples": [examples]},
        {"statistics": [other]},
        {"stats_options_json": options.to_json(), "exclude_splits": "[]"},
    )
    ours = written(
        examples,
        tmp_path / "ours",
        slices=["carrier", ["seats", "carrier"]],
        weight="seats",
    )
    assert ours.split_names == other.split_names
    for split in ("train", "eval"):
        found, expected = loaded(ours, split), loaded(other, split)
        by_name = [{x.name: x for x in y.proto().datasets} for y in (found, expected)]
        assert_equal(*by_name)
        slice_ = tfdv.get_slice_stats(found.proto(), "carrier_AA")
        assert slice_.datasets[0].num_examples < found.proto().datasets[0].num_examples


def test_a_sample_is_recorded_and_the_same_for_the_same_data(examples, tmp_path):
    from tfx.components.statistics_gen import executor as stock

    whole = written(examples, tmp_path / "whole", slices=["carrier"])
    request = {"slices": ["carrier"], "sample": 0.25}
    once, again = (written(examples, tmp_path / x, **request) for x in ("1", "2"))
    key = stock.SAMPLE_RATE_BY_SPLIT_PROPERTY_NAME
    rates = json.loads(once.get_json_value_custom_property(key))
    assert rates == {"train": 0.25, "eval": 0.25}
    for split, rows in (("train", 2400), ("eval", 200)):
        found, other = loaded(once, split).proto(), loaded(again, split).proto()
        assert found == other
        every, aa, _ = loaded(whole, split).proto().datasets
        assert (every.num_examples, aa.name) == (rows, "carrier_AA")
        drawn, drawn_aa, _ = found.datasets
        spread = 5 * (rows * 0.25 * 0.75) ** 0.5
        assert abs(drawn.num_examples - rows / 4) < spread
        assert 0 < drawn_aa.num_examples < aa.num_examples


def test_a_sample_of_damaged_examples_is_rejected_all_the_same(examples, tmp_path):
    import shutil
    from pathlib import Path

    from tfx.types import standard_artifacts

    from strategos.components.errors import UserError

    folder = tmp_path / "examples"
    shutil.copytree(examples.uri, folder)
    copy = standard_artifacts.Examples()
    copy.set_mlmd_artifact(examples.mlmd_artifact)
    copy.uri = str(folder)
    sorted(Path(folder, "Split-train").iterdir())[3].unlink()
    with pytest.raises(UserError, match="read 2,200 rows, but 2,400 were written"):
        written(copy, tmp_path / "out", slices=["carrier"], sample=0.5)


def test_examples_of_another_format_are_rejected_not_computed_otherwise(
    examples, tmp_path
):
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    from strategos.components.errors import UserError

    other = standard_artifacts.Examples()
    other.set_mlmd_artifact(examples.mlmd_artifact)
    payload = example_gen_pb2.PayloadFormat.FORMAT_PARQUET
    examples_utils.set_payload_format(other, payload)
    with pytest.raises(UserError, match="does not hold tf.Examples") as caught:
        written(other, tmp_path, sample=0.5)
    assert caught.value.key == "statistics"


def test_a_split_without_rows_has_statistics_without_slices(tmp_path):
    from tfx.types import standard_artifacts

    empty = standard_artifacts.Examples()
    empty.uri, empty.split_names = str(tmp_path / "examples"), '["train"]'
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    found = written(empty, tmp_path / "out", slices=["carrier"], weight="w")
    (dataset,) = loaded(found).proto().datasets
    assert (dataset.name, dataset.num_examples) == ("All Examples", 0)

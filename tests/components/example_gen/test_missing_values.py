"""Missing values in statistics, schema and parsing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Thirty rows: `void` never has a value, `x` not in the first ten."""
    path = tmp_path_factory.mktemp("missing") / "a.csv"
    rows = [f"{i},{i if i > 10 else ''},,{'' if i % 3 else 't'}" for i in range(1, 31)]
    path.write_text("\n".join(["n,x,void,text", *rows]))
    return path


def statistics(written, split):
    from strategos.components.statistics.generators import compute
    from strategos.components.statistics_gen.executor import read_batches

    files = sorted(Path(written.artifact.uri, f"Split-{split}").iterdir())
    return compute(read_batches([str(file) for file in files]))


def counted(stats):
    """By feature: (missing, present)."""
    found = {}
    for feature in stats.datasets[0].features:
        common = getattr(feature, feature.WhichOneof("stats")).common_stats
        counts = int(common.num_missing), int(common.num_non_missing)
        found[feature.path.step[0]] = counts
    return found


@pytest.mark.formats
def test_statistics_count_missing_values_as_tfdv_does_from_the_csv(data, run):
    import tensorflow_data_validation as tfdv

    written = run(data)
    totals = dict.fromkeys(("n", "x", "void", "text"), (0, 0))
    for split in ("train", "eval"):
        for name, (missing, present) in counted(statistics(written, split)).items():
            totals[name] = totals[name][0] + missing, totals[name][1] + present
    oracle = counted(tfdv.generate_statistics_from_csv(str(data)))
    assert totals == oracle
    assert oracle["void"] == (30, 0)
    assert oracle["x"] == (10, 20)


def test_schema_of_a_column_without_values_demands_none(data, run):
    import tensorflow_data_validation as tfdv

    written = run(data)
    schema = tfdv.infer_schema(statistics(written, "train"))
    schema = tfdv.update_schema(schema, statistics(written, "eval"))
    presence = {f.name: f.presence.min_fraction for f in schema.feature}
    assert presence["n"] == 1
    assert presence["void"] == 0
    assert presence["x"] < 1
    assert "without any value: void" in written.report()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_column_that_falls_silent_is_an_anomaly(tmp_path, run, form):
    import tensorflow_data_validation as tfdv
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    text = "".join(
        f'feature {{ name: "{name}" type: INT presence {{ min_fraction: 1 }} }}\n'
        for name in ("n", "x")
    )
    (tmp_path / "s.pbtxt").write_text(text)
    if form == "csv":
        (tmp_path / "a.csv").write_text("n,x\n" + "".join(f"{i},\n" for i in range(30)))
    else:
        table = pa.table({"n": range(30), "x": pa.nulls(30, pa.int64())})
        pq.write_table(table, tmp_path / "a.parquet")
    written = run(f"{tmp_path}/a.{form}", schema_file=str(tmp_path / "s.pbtxt"))
    schema = text_format.Parse(text, schema_pb2.Schema())
    anomalies = tfdv.validate_statistics(statistics(written, "train"), schema)
    assert list(anomalies.anomaly_info) == ["x"]


def test_missing_and_empty_are_parsed_as_the_stock_examples_are(data, run, run_stock):
    import tensorflow as tf

    spec = {
        "n": tf.io.FixedLenFeature([1], tf.int64),
        "x": tf.io.VarLenFeature(tf.int64),
        "void": tf.io.VarLenFeature(tf.string),
        "text": tf.io.VarLenFeature(tf.string),
    }

    def parsed(written):
        files = tf.io.gfile.glob(f"{written.artifact.uri}/Split-*/*")
        records = tf.data.TFRecordDataset(files, "GZIP").batch(30).get_single_element()
        tensors = tf.io.parse_example(records, spec)
        order = tf.argsort(tensors["n"][:, 0])
        return {
            name: tf.gather(value, order).numpy().tolist()
            if name == "n"
            else tf.gather(tf.RaggedTensor.from_sparse(value), order).to_list()
            for name, value in tensors.items()
        }

    assert parsed(run(data)) == parsed(run_stock(data.parent))


def test_parquet_list_without_elements_is_not_missing(tmp_path, run):
    lists = [[1, 2], [], None] * 10
    pq.write_table(pa.table({"x": lists}), tmp_path / "a.parquet")
    rows = run(f"{tmp_path}/a.parquet").features()
    found = {(row["x"][0], *row["x"][1]) for row in rows}
    assert found == {("int64_list", 1, 2), ("int64_list",), (None,)}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_report_counts_empty_cells_and_names_the_first(tmp_path, run, form):
    from strategos.components.records import emptiness

    x = [None if n in (11, 25) else n for n in range(40)]
    table = pa.table({"x": x, "y": [f"t{n}" for n in range(40)], "z": [None] * 40})
    for name in ("a", "b"):  # only the second one has gaps
        path, full = tmp_path / f"{name}.{form}", pa.array(range(40))
        table_of = table if name == "b" else table.set_column(0, "x", full)
        if form == "parquet":
            pq.write_table(table_of, path)
        else:
            table_of.to_pandas().astype({"x": "Int64"}).to_csv(path, index=False)
    written = run(tmp_path / f"*.{form}")
    place = {"csv": "line 13", "parquet": "row 12"}[form]
    (line,) = (each for each in written.lines() if each.startswith("missing values"))
    first = f"first at {tmp_path}/b.{form}: {place}"
    assert line == f"missing values: x 2 ({first}), z 80"
    recorded = written.artifact.get_string_custom_property("empty_cells")
    found = emptiness.from_json(recorded)
    assert (found["x"].rows, found["x"].of, found["x"].all) == (2, 80, False)
    assert found["z"].all and "y" not in found


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_without_a_label_are_left_out_and_counted(tmp_path, run, form):
    table = pa.table(
        {"n": range(50), "y": [None if n % 7 == 3 else 1.5 + n for n in range(50)]}
    )
    if form == "parquet":
        pq.write_table(table, tmp_path / "a.parquet")
    else:
        table.to_pandas().to_csv(tmp_path / "a.csv", index=False)
    path = tmp_path / f"a.{form}"
    kept, dropped = run(path, label="y"), run(path, label="y", unlabelled="drop")
    for split in ("train", "eval"):  # the other rows stay in their split
        labelled = [row for row in kept.rows(split) if row["y"]]
        assert dropped.rows(split) == labelled
        stats = statistics(dropped, split)
        assert stats.datasets[0].num_examples == len(labelled)
    assert len(kept.rows()) == 50 and len(dropped.rows()) == 43
    assert "left out: 7 rows of 50 without a label" in dropped.lines()
    assert dropped.artifact.get_int_custom_property("rows") == 43


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_label_that_train_lacks_is_recorded_with_its_place(tmp_path, run, form):
    labels = {1: ["cat", "dog", None, "cat"], 2: ["dog", None, "zebra", "emu"]}
    for span, values in labels.items():
        path, table = tmp_path / f"{span}.{form}", pa.table({"y": values, "x": [1] * 4})
        if form == "parquet":
            pq.write_table(table, path)
        else:
            table.to_pandas().to_csv(path, index=False)
    by_span = {"by": "span", "spans": 1, "keys": [], "train": 8, "eval": 2}
    written = run(f"{tmp_path}/{{SPAN}}.{form}", by_span, label="y")
    place = {"csv": "line 4", "parquet": "row 3"}[form]
    recorded = written.artifact.get_string_custom_property("unseen_labels")
    assert json.loads(recorded) == {"eval": f"'zebra' ({tmp_path}/2.{form}: {place})"}

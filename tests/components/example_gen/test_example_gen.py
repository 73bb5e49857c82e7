"""ExampleGen from files to TFRecords; its executor runs on real artifacts."""

from __future__ import annotations

import collections
import csv
import gzip
import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.errors import UserError

ROWS = [
    ["name", "age", "weight", "when"],
    *(
        [f"n{i % 40}", i, "" if i % 7 == 0 else i / 4, f"2013-01-{i % 28 + 1:02}"]
        for i in range(200)
    ),
]


def write_csv(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_schema(path, **kinds):
    path.write_text(
        "".join(
            f'feature {{ name: "{name}" type: {kind} presence {{ min_count: 1 }} }}\n'
            for name, kind in kinds.items()
        )
    )
    return str(path)


def test_types_are_inferred_and_missing_values_are_empty_lists(tmp_path, run):
    examples = run(write_csv(tmp_path / "a.csv"))
    rows = sorted(examples.rows(), key=lambda row: row["age"])
    assert len(rows) == 200
    assert rows[0] == {
        "name": [b"n0"],
        "age": [0],
        "weight": [],
        "when": [b"2013-01-01"],
    }
    assert rows[3]["weight"] == [0.75]


def test_artifact_says_what_it_holds(tmp_path, run):
    for span in (3, 4):
        write_csv(tmp_path / f"span-{span}" / "a.csv")
    examples = run(f"{tmp_path}/span-{{SPAN}}/*.csv")
    train, evaluated = (len(examples.rows(s)) for s in ("train", "eval"))
    assert examples.artifact.get_int_custom_property("rows") == train + evaluated == 400
    assert examples.artifact.get_int_custom_property("rows_train") == train
    assert examples.artifact.get_int_custom_property("rows_eval") == evaluated
    assert (
        examples.artifact.span == examples.artifact.get_int_custom_property("span") == 4
    )
    assert examples.artifact.split_names == '["train", "eval"]'
    files = json.loads(examples.artifact.get_string_custom_property("files"))
    assert files == [f"{tmp_path}/span-{s}/a.csv" for s in (3, 4)]
    names = os.listdir(f"{examples.artifact.uri}/Split-train")
    assert names == ["data_tfrecord-00000-of-00001.gz"]


def test_only_the_chosen_spans_are_read(tmp_path, run):
    for span in (1, 2, 3):
        write_csv(tmp_path / f"{span}.csv", [["n"], *([span] for _ in range(30))])
    examples = run(f"{tmp_path}/{{SPAN}}.csv", spans=[[1, None], [3, None]])
    assert {value for (value,) in examples.values("n")} == {1, 3}


def test_same_rows_as_stock_csv_example_gen(tmp_path, run, run_stock):
    path = write_csv(tmp_path / "data" / "a.csv")

    def multiset(examples):
        return collections.Counter(
            tuple(sorted((k, tuple(v)) for k, v in row.items()))
            for row in examples.rows()
        )

    assert multiset(run(path)) == multiset(run_stock(path.parent))


def test_a_column_takes_the_widest_type_of_all_files(tmp_path, run):
    write_csv(tmp_path / "a.csv", [["x", "y", "z"], *([1, 2, ""] for _ in range(20))])
    write_csv(tmp_path / "b.csv", [["z", "y", "x"], *(["", "b", 0.5] for _ in "12345")])
    examples = run(f"{tmp_path}/*.csv")
    assert {tuple(v) for v in examples.values("x")} == {(1.0,), (0.5,)}
    assert {tuple(v) for v in examples.values("y")} == {(b"2",), (b"b",)}
    assert {tuple(v) for v in examples.values("z")} == {()}


def test_late_widening_in_a_long_column(tmp_path, run):
    rows = [["x"], *([i] for i in range(5_000)), ["1e3"]]
    examples = run(write_csv(tmp_path / "a.csv", rows))
    assert min(examples.values("x")) == [0.0]


def test_whole_numbers_too_long_for_int64_stay_text(tmp_path, run):
    rows = [["x"], *(["12345678901234567890"] for _ in range(20))]
    assert run(write_csv(tmp_path / "a.csv", rows)).values("x")[0][0][:3] == b"123"


def test_gzipped_csv_with_bom_quotes_and_line_breaks(tmp_path, run):
    rows = [["\ufefft", "n"], *(['a "b",\nc', i] for i in range(20))]
    examples = run(write_csv(tmp_path / "a.csv.gz", rows))
    assert examples.values("t")[0] == [b'a "b",\nc']


def test_schema_gives_the_types(tmp_path, run):
    schema = write_schema(
        tmp_path / "s.pbtxt", name="BYTES", age="FLOAT", weight="FLOAT", when="BYTES"
    )
    examples = run(write_csv(tmp_path / "a.csv"), schema_file=schema)
    assert sorted(examples.values("age"))[1] == [1.0]
    assert isinstance(examples.values("age")[0][0], float)


def test_hash_split_keeps_equal_keys_together_in_any_file(tmp_path, run):
    split = {"by": "hash", "keys": ["name", "when"], "train": 8, "eval": 2}
    write_csv(tmp_path / "1.csv")
    write_csv(tmp_path / "2.csv", [ROWS[0], *reversed(ROWS[1:150])])
    first = run(tmp_path / "1.csv", split)
    second = run(tmp_path / "2.csv", split)

    def keys(examples, name):
        rows = examples.rows(name)
        return {(row["name"][0], row["when"][0]) for row in rows}

    assert not keys(first, "train") & keys(first, "eval")
    assert keys(second, "train") <= keys(first, "train")
    assert keys(second, "eval") <= keys(first, "eval")


def test_newest_spans_are_held_out_whole(tmp_path, run):
    for span in (1, 2, 10):
        rows = [["x"], *([span] for _ in range(span + 5))]
        (tmp_path / str(span)).mkdir()
        write_csv(tmp_path / str(span) / "a.csv", rows)
    split = {"by": "span", "spans": 2, "keys": [], "train": 8, "eval": 2}
    examples = run(tmp_path / "{SPAN}" / "a.csv", split)
    assert [row["x"] for row in examples.rows("train")] == [[1]] * 6
    assert [row["x"] for row in examples.rows("eval")] == [[2]] * 7 + [[10]] * 15


def test_hash_split_is_the_documented_one():
    import hashlib

    from strategos.components.data_files.splitting import Splitter

    batch = pa.RecordBatch.from_pydict(
        {"a": ["x", None, "x"], "b": pa.array([1, 2, 1])}
    )
    fractions = [
        int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
        for key in (b"x\x1f1", b"\x1f2", b"x\x1f1")
    ]
    for share in (0.1, 0.5, 0.9):
        found = Splitter(("a", "b"), share, 1 - share).masks(batch, 0, "", 0)
        assert found["train"].tolist() == [fraction < share for fraction in fractions]


def test_ratio_split_does_not_depend_on_batches_or_later_spans():
    from strategos.components.data_files.splitting import Splitter

    splitter = Splitter((), 8, 2)

    def trains(rows, span, file, first):
        batch = pa.RecordBatch.from_pydict({"a": range(rows)})
        return splitter.masks(batch, span, file, first)["train"]

    whole = trains(1000, 7, "a.csv", 0)
    assert (whole[600:] == trains(400, 7, "a.csv", 600)).all()
    assert 0.77 < whole.mean() < 0.83
    for other in (trains(400, 8, "a.csv", 0), trains(400, 7, "b.csv", 0)):
        assert (whole[:400] != other).any()


def test_parquet_types(tmp_path, run):
    count = 30
    table = pa.table(
        {
            "image": pa.array([b"\x89PNG\x00\xff"] * count, pa.binary()),
            "tags": pa.array([["a", "b"], [], None] * 10),
            "vector": pa.array([[1.0, 2.0]] * count, pa.list_(pa.float64(), 2)),
            "flag": pa.array([True, None, False] * 10),
            "when": pa.array([0] * count, pa.timestamp("s")),
            "small": pa.array([5] * count, pa.uint8()),
            "kind": pa.array(["x", None, "y"] * 10).dictionary_encode(),
            "void": pa.nulls(count),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    examples = run(tmp_path / "a.parquet")
    rows = examples.rows()
    assert rows[0]["image"] == [b"\x89PNG\x00\xff"]
    assert {tuple(row["tags"]) for row in rows} == {(b"a", b"b"), ()}
    assert {tuple(row["vector"]) for row in rows} == {(1.0, 2.0)}
    assert {tuple(row["flag"]) for row in rows} == {(1,), (), (0,)}
    assert {tuple(row["when"]) for row in rows} == {(b"1970-01-01 00:00:00",)}
    assert {tuple(row["small"]) for row in rows} == {(5,)}
    assert {tuple(row["kind"]) for row in rows} == {(b"x",), (), (b"y",)}
    assert {tuple(row["void"]) for row in rows} == {()}


def test_large_data_lie_in_several_shards_and_stay_in_order(tmp_path, run):
    big = [bytes([i]) * 2_000_000 for i in range(40)]
    pq.write_table(pa.table({"n": range(40), "b": big}), tmp_path / "a.parquet")
    examples = run(tmp_path / "a.parquet")
    names = sorted(os.listdir(f"{examples.artifact.uri}/Split-train"))
    assert names == [f"data_tfrecord-0000{i}-of-00002.gz" for i in range(2)]
    order = [row["n"][0] for row in examples.rows("train")]
    assert order == sorted(order)


def test_equal_data_give_equal_files(tmp_path, run):
    path = write_csv(tmp_path / "a.csv")

    def content(examples):
        return {
            split: [
                open(f"{examples.artifact.uri}/Split-{split}/{name}", "rb").read()
                for name in sorted(os.listdir(f"{examples.artifact.uri}/Split-{split}"))
            ]
            for split in ("train", "eval")
        }

    assert content(run(path)) == content(run(path))


class TestRefusals:
    """Every error names the place and the remedy."""

    @pytest.fixture
    def refused(self, run):
        def call(*args, **kwargs):
            with pytest.raises(UserError) as caught:
                run(*args, **kwargs)
            return str(caught.value)

        return call

    def test_glob_that_matches_nothing(self, tmp_path, refused):
        message = refused(f"{tmp_path}/none/*.csv")
        assert "none/*.csv matches no file" in message

    def test_unknown_format(self, tmp_path, refused):
        (tmp_path / "a.xlsx").write_text("x")
        assert "a.xlsx; the format of this file" in refused(f"{tmp_path}/*.xlsx")

    @pytest.mark.parametrize(
        ("text", "message"), [("", "is empty"), ("a,b\n", "has a header but no row")]
    )
    def test_empty_csv(self, tmp_path, refused, text, message):
        (tmp_path / "a.csv").write_text(text)
        assert f"{tmp_path}/a.csv: {message}" in refused(f"{tmp_path}/*.csv")

    def test_missing_column_between_files(self, tmp_path, refused):
        write_csv(tmp_path / "a.csv", [["x", "y"], [1, 2]])
        write_csv(tmp_path / "b.csv", [["x"], [1]])
        message = refused(f"{tmp_path}/*.csv")
        assert f"{tmp_path}/b.csv: no column `y`, which {tmp_path}/a.csv has" in message

    def test_missing_and_extra_columns_against_the_schema(self, tmp_path, refused):
        path = write_csv(tmp_path / "a.csv", [["x", "yy"], [1, 2]])
        schema = write_schema(tmp_path / "s.pbtxt", x="INT", y="INT")
        message = refused(path, schema_file=schema)
        assert "a.csv: no column `y`" in message
        assert "s.pbtxt declares" in message
        assert "Nearest: `yy`" in message
        schema = write_schema(tmp_path / "s.pbtxt", x="INT")
        assert "column `yy` is not in" in refused(path, schema_file=schema)

    def test_wrong_type_names_the_line_in_the_file(self, tmp_path, refused):
        rows = [["t", "x"], *(["two\nlines", i] for i in range(5)), ["t", "5.5"]]
        path = write_csv(tmp_path / "a.csv", rows)
        schema = write_schema(tmp_path / "s.pbtxt", t="BYTES", x="INT")
        message = refused(path, schema_file=schema)
        assert f"{path}: line 12: column `x`: received '5.5'" in message

    def test_wrong_type_far_into_a_file_with_blank_lines(self, tmp_path, refused):
        lines = ["x,y", *(f"{i},1" for i in range(70_000)), "", "abc,1", "1,1"]
        (tmp_path / "a.csv").write_text("\n".join(lines))
        schema = write_schema(tmp_path / "s.pbtxt", x="FLOAT", y="INT")
        message = refused(tmp_path / "a.csv", schema_file=schema)
        assert "line 70003: column `x`: received 'abc'" in message

    def test_wrong_type_in_parquet_names_the_row(self, tmp_path, refused):
        pq.write_table(pa.table({"x": [None, 0.5]}), tmp_path / "a.parquet")
        schema = write_schema(tmp_path / "s.pbtxt", x="INT")
        message = refused(tmp_path / "a.parquet", schema_file=schema)
        assert "a.parquet: row 2: column `x`: received '0.5'" in message

    def test_list_with_a_gap(self, tmp_path, refused):
        pq.write_table(pa.table({"x": [[1], [1, None]]}), tmp_path / "a.parquet")
        message = refused(tmp_path / "a.parquet")
        assert "row 2: column `x`: received '[1, None]'; a list" in message

    def test_line_with_too_few_fields(self, tmp_path, refused):
        (tmp_path / "a.csv").write_text("x,y\n1,2\n3\n")
        message = refused(tmp_path / "a.csv")
        assert (
            "a.csv: line 3: expected 2 fields as in the header. Received: 1" in message
        )

    def test_quote_that_stays_open_until_a_later_line(self, tmp_path, refused):
        (tmp_path / "a.csv").write_text('x,y\n1,2\n3,"4\n5,6\n7,8" 9,1\n')
        message = refused(tmp_path / "a.csv")
        assert "a.csv: line 3: expected 2 fields" in message
        assert "A quote stays open at its end: close it" in message

    def test_text_that_is_not_utf8(self, tmp_path, refused):
        (tmp_path / "a.csv").write_bytes("x,y\n1,Zürich\n".encode("latin1"))
        assert "a.csv: is not UTF-8 text" in refused(tmp_path / "a.csv")

    def test_unnamed_and_repeated_columns(self, tmp_path, refused):
        (tmp_path / "a.csv").write_text(",x\n0,1\n")
        assert "column 1 has no name" in refused(tmp_path / "a.csv")
        (tmp_path / "a.csv").write_text("x,x\n0,1\n")
        assert "column `x` occurs 2 times" in refused(tmp_path / "a.csv")

    @pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1xxPAR1"])
    def test_unreadable_parquet(self, tmp_path, refused, content):
        (tmp_path / "a.parquet").write_bytes(content)
        assert "a.parquet: cannot be read as Parquet" in refused(tmp_path / "a.parquet")

    def test_damaged_parquet(self, tmp_path, refused):
        path = tmp_path / "a.parquet"
        table = pa.table({"x": [str(i) for i in range(5000)]})
        pq.write_table(table, path, compression="gzip")
        content = bytearray(path.read_bytes())
        content[50:2000] = bytes(1950)
        path.write_bytes(content)
        assert "a.parquet: cannot be read as Parquet" in refused(path)

    def test_damaged_gzip(self, tmp_path, refused):
        path = write_csv(tmp_path / "a.csv.gz")
        path.write_bytes(path.read_bytes()[:-300])
        assert "a.csv.gz: cannot be read" in refused(path)

    def test_type_that_no_example_holds(self, tmp_path, refused):
        pq.write_table(pa.table({"x": [[{"a": 1}]]}), tmp_path / "a.parquet")
        message = refused(tmp_path / "a.parquet")
        # The newer pyarrow names the items of a list as Parquet does.
        assert re.search("column `x` has the type list<(item|element): struct", message)

    def test_split_without_rows(self, tmp_path, refused):
        path = write_csv(tmp_path / "a.csv", [["x"], ["k"], ["k"]])
        split = {"by": "hash", "keys": ["x"], "train": 8, "eval": 2}
        message = refused(path, split)
        assert "got none of the 2 rows, divided by the keys x" in message

    def test_split_by_a_column_that_is_not_there(self, tmp_path, refused):
        split = {"by": "hash", "keys": ["nam"], "train": 8, "eval": 2}
        message = refused(write_csv(tmp_path / "a.csv"), split)
        assert "data.split.keys: received `nam`; " in message

    @pytest.mark.parametrize(("value", "shown"), [(0, "0"), ("", "missing")])
    def test_label_without_a_second_value(self, tmp_path, refused, value, shown):
        rows = [["x", "late"], *([i, value] for i in range(20))]
        message = refused(write_csv(tmp_path / "a.csv", rows), label="late")
        assert f"label: `late` is {shown} in all 20 rows" in message

    def test_schema_that_does_not_parse(self, tmp_path, refused):
        (tmp_path / "s.pbtxt").write_text('feature {\n  nam: "x"\n}\n')
        schema = str(tmp_path / "s.pbtxt")
        message = refused(write_csv(tmp_path / "a.csv"), schema_file=schema)
        assert f"{schema}:2:3: not a schema" in message


def test_component_takes_runtime_parameters():
    from tfx.orchestration import data_types

    from strategos.components.example_gen.component import ExampleGen

    component = ExampleGen(
        pattern="/data/{SPAN}/*",
        spans=data_types.RuntimeParameter("spans", ptype=str, default="[]"),
        fingerprint=data_types.RuntimeParameter("fingerprint", ptype=str),
        split='{"by": "ratio", "keys": [], "train": 8, "eval": 2}',
    )
    assert component.id == "ExampleGen"
    assert component.outputs["examples"].type_name == "Examples"

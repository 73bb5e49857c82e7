"""`strategos init` and `strategos data`: what columns and labels are taken for."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from strategos.components.data_files.sources import undeclared
from strategos.components.errors import BadInputError
from strategos.pipeline import cli
from strategos.pipeline.config import loading
from strategos.pipeline.init import features, label, sample
from strategos.pipeline.init.columns import Column

ROWS = 200
NUMBERS = np.random.default_rng(1).normal(size=ROWS).round(4)
RANDOM = np.random.default_rng(4).integers(0, 3, ROWS)
CLASSES = [f"class {number}" for number in RANDOM]


def _rows(table):
    return zip(*table.values(), strict=True)


def columns_of(tmp_path, table):
    """The columns of a CSV file with these values, as text."""
    path = tmp_path / "table.csv"
    lines = [",".join(f'"{each}"' for each in table)]
    lines += [",".join(f'"{each}"' for each in row) for row in _rows(table)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = sample.read(str(path))
    return [Column(rows, name) for name in rows.columns]


def proposal_for(tmp_path, values, target=CLASSES, name="x"):
    columns = columns_of(tmp_path, {name: values, "label": target})
    (feature,) = features.propose(columns, label.find(columns, "label"))
    return feature


def repeated(*values):
    return [values[index % len(values)] for index in range(ROWS)]


DAY = datetime.date(2024, 1, 1)
DATES = [DAY + datetime.timedelta(index % 90) for index in range(ROWS)]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (NUMBERS, 'tft.scale_to_z_score(inputs["x"])'),
        (np.exp(5 * NUMBERS), 'tft.scale_to_z_score(_logarithm(inputs["x"]))'),
        (
            ["inf", "-inf", *NUMBERS[2:]],
            f'tft.scale_to_z_score(_finite(inputs["x"], {np.median(NUMBERS[2:]):.6g}))',
        ),
        (repeated(0, 1, 1), 'tft.scale_to_z_score(inputs["x"])'),
        (repeated(3, 7, 9, 1, 3), '_category(inputs["x"], "x")'),
        (repeated("Bonn", "Ulm", "New York"), '_category(inputs["x"], "x")'),
        (repeated("yes", "No", "Y", "n", "ja"), '["Y", "ja", "yes"])'),
        ([f"{day:%Y-%m-%d}" for day in DATES], '_date(inputs["x"], "ymd")'),
        ([f"{day:%d.%m.%Y}" for day in DATES], '_date(inputs["x"], "dmy")'),
        ([f"{day:%m/%d/%Y}" for day in DATES], '_date(inputs["x"], "mdy")'),
        ([f"{day:%d/%m/%Y}" for day in DATES], '_date(inputs["x"], "dmy")'),
        ([f"${1000 + each:,.2f}" for each in range(ROWS)], '_amount(inputs["x"]))'),
        (repeated("1.234,50 €", "99,00 €"), '_amount(inputs["x"], comma=True))'),
        (repeated("12 kg", "n/a", *["13 kg"] * 30), '_amount(inputs["x"]))'),
        ([f"room {n} is cold" for n in range(ROWS)], '_counts(_words(inputs["x"]))'),
        (repeated("01234", "53111", "00501"), '_category(inputs["x"], "x")'),
        (repeated("A7", "3B", "C1"), '_category(inputs["x"], "x")'),
    ],
)
def test_a_column_becomes_a_feature_of_its_kind(tmp_path, values, code):
    assert proposal_for(tmp_path, values).code.endswith(code)


def test_a_gap_in_numbers_becomes_a_feature_of_its_own(tmp_path):
    values = ["" if index % 10 == 0 else index % 97 for index in range(ROWS)]
    feature = proposal_for(tmp_path, values)
    assert feature.code == 'tft.scale_to_z_score(_filled(inputs["x"], 46))'
    assert feature.missing == '_is_missing(inputs["x"])'


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([""] * ROWS, "no value in any row"),
        (["same"] * ROWS, "'same' in every row"),
        (range(5000, 5000 + ROWS), "numbers the rows"),
        ([f"u{index}@example.com" for index in range(ROWS)], "an identifier"),
        ([each.replace("class ", "code-") for each in CLASSES], "a leak"),
    ],
)
def test_a_column_that_says_nothing_or_all_is_left_out(tmp_path, values, reason):
    feature = proposal_for(tmp_path, values)
    assert not feature.name
    assert reason in feature.reason


def test_a_number_of_customers_is_an_identifier_by_its_name(tmp_path):
    shuffled = np.random.default_rng(2).permutation(ROWS) * 7
    assert not proposal_for(tmp_path, shuffled, name="customer_id").name
    assert proposal_for(tmp_path, shuffled, name="price").name


def test_a_number_that_is_the_label_is_a_leak(tmp_path):
    assert "a leak" in proposal_for(tmp_path, NUMBERS * 2 + 1, NUMBERS).reason
    noisy = NUMBERS + np.random.default_rng(3).normal(size=ROWS)
    assert proposal_for(tmp_path, noisy, NUMBERS).name


def test_a_number_whose_size_or_gap_tells_the_label_is_a_leak(tmp_path):
    works = NUMBERS > 0.3
    target = np.where(works, "yes", "no")
    hours = np.where(works, 10 + NUMBERS, 0)
    assert "a leak" in proposal_for(tmp_path, hours, target).reason
    gap = ["" if each else number for each, number in zip(works, NUMBERS, strict=True)]
    assert "a leak" in proposal_for(tmp_path, gap, target).reason
    unsure = np.where(np.random.default_rng(5).random(ROWS) < 0.9, hours, 11)
    assert proposal_for(tmp_path, unsure, target).name


def test_names_of_features_are_plain_and_differ(tmp_path):
    names = ["Größe (cm)", "Größe [cm]", "2nd", "größe_cm", "…", "dense"]
    table = {name: NUMBERS for name in names} | {"label": CLASSES}
    columns = columns_of(tmp_path, table)
    proposed = features.propose(columns, label.find(columns, "label"))
    expected = ["groe_cm", "groe_cm_2", "column_2nd", "groe_cm_3", "column"]
    expected.append("dense_2")  # the model has a layer `dense`
    assert [each.name for each in proposed] == expected


@pytest.mark.parametrize(
    ("values", "task", "classes", "positives"),
    [
        (repeated(0, 0, 1), "binary", ("0", "1"), ()),
        (repeated(1, 1, 2), "binary", ("1", "2"), ("2",)),
        (repeated("no", "Yes", "N", "yes"), "binary", ("N", "Yes"), ("Yes", "yes")),
        (repeated("stays", "stays", "leaves"), "binary", None, ("leaves",)),
        (repeated(3, 5, 8), "multi_class", ("3", "5", "8"), ()),
        (CLASSES, "multi_class", ("class 0", "class 1", "class 2"), ()),
        (range(0, 3 * ROWS, 3), "regression", (), ()),
        (NUMBERS, "regression", (), ()),
    ],
)
def test_the_task_follows_from_the_label(tmp_path, values, task, classes, positives):
    found = label.find(columns_of(tmp_path, {"x": NUMBERS, "y": values}), "y")
    assert (found.task, found.positives) == (task, positives)
    assert classes is None or found.classes == classes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([""] * ROWS, "has none in any row"),
        (["a"] * ROWS, "is 'a' in every row"),
        ([f"{each} a" for each in range(ROWS)], "has another text in each row"),
        ([f"{each // 2} a" for each in range(ROWS)], "has 100 distinct texts"),
        (range(ROWS), "numbers the rows"),
        (["inf", *NUMBERS[1:]], "has 1 NaN or infinite number"),
    ],
)
def test_a_label_that_cannot_be_predicted_is_rejected(tmp_path, values, message):
    columns = columns_of(tmp_path, {"x": NUMBERS, "y": values})
    with pytest.raises(BadInputError, match=message):
        label.find(columns, "y")


def test_without_a_label_the_page_on_such_models_is_named(tmp_path, capsys):
    columns_of(tmp_path, {"bought": repeated(0, 1), "x": NUMBERS})
    assert cli.main(["init", str(tmp_path / "table.csv")]) == 2
    page = "docs/configuration/reconstruction.md"
    assert f"A workload without a label is written by hand: {page}" in (
        capsys.readouterr().err
    )
    assert (Path(__file__).parents[3] / page).is_file()


def test_a_label_that_is_misspelled_is_named_with_the_nearest(tmp_path, capsys):
    columns_of(tmp_path, {"bought": repeated(0, 1), "x": NUMBERS})
    code = cli.main(["init", str(tmp_path / "table.csv"), "--label", "bougth"])
    error = capsys.readouterr().err
    assert code == 2
    assert "`bougth`" in error and "`bought`" in error


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"\x89PNG", "DATA: received a.png; the format of this file is not"),
        ("a.csv", b"x,y\n\x00", "a.csv: line 2: holds a zero byte"),
        ("a.csv", b"", "a.csv: is empty"),
        ("a.jsonl", b'{"x": 1', "a.jsonl: line 1: is not a JSON object"),
        ("a.parquet", b"PAR", "a.parquet: cannot be read as Parquet"),
        (None, b"", "DATA: a.csv matches no file"),
    ],
)
@pytest.mark.parametrize("words", [["init", "--label", "y"], ["data"]])
def test_a_file_that_is_no_table_is_bad_input(
    tmp_path, capsys, monkeypatch, words, name, content, message
):
    monkeypatch.chdir(tmp_path)
    if name:
        Path(name).write_bytes(content)
    assert cli.main([words[0], name or "a.csv", *words[1:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"strategos: {message}") and "Traceback" not in error


@pytest.mark.parametrize("name", ["Shop", "a_b", "1st", ""])
def test_a_name_is_plain_whatever_the_data_are_called(
    tmp_path, capsys, monkeypatch, name
):
    columns_of(tmp_path, {"bought": repeated(0, 1), "x": NUMBERS})
    monkeypatch.chdir(tmp_path)
    given = ["--name", name] if name else []
    code = cli.main(["init", "table.csv", "--label", "bought", "--no-fit", *given])
    assert code == (2 if name else 0)
    assert (tmp_path / "table" / "pipeline.yaml").exists() == (not name)


def test_an_existing_folder_stays_as_it_is(tmp_path, capsys, monkeypatch):
    columns_of(tmp_path, {"bought": repeated(0, 1), "x": NUMBERS})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "mine.txt").write_text("mine")
    assert cli.main(["init", "table.csv", "--label", "bought"]) == 2
    assert "table exists" in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "table").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_file_of_another_program_is_read_as_it_is_written(
    tmp_path, encoding, delimiter
):
    decimal = "." if delimiter == "," else ","
    numbers = [f"{each:.2f}".replace(".", decimal) for each in NUMBERS]
    lines = [delimiter.join(["größe", "note", "y"])]
    lines += [delimiter.join([each, "a, b: ü", "1"]) for each in numbers]
    if delimiter == ",":
        lines = [each.replace("a, b: ü", '"a, b: ü"') for each in lines]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    rows = sample.read(str(path))
    assert (rows.csv.delimiter, rows.csv.decimal) == (delimiter, decimal)
    column = Column(rows, "größe")
    assert column.numbers == pytest.approx(NUMBERS.round(2), abs=1e-6)
    assert Column(rows, "note").counts == {"a, b: ü": ROWS}


def test_a_file_that_is_no_table_is_named(tmp_path, capsys):
    path = tmp_path / "picture.csv"
    path.write_bytes(np.random.default_rng(6).bytes(5000))
    assert cli.main(["data", str(path)]) in (1, 2)
    error = capsys.readouterr().err
    assert "picture.csv" in error and "This is a bug" not in error


@pytest.mark.parametrize("words", [["init", "--label", "y"], ["data"]])
def test_lists_that_only_a_setting_reads_are_for_workloads_by_hand(
    tmp_path, capsys, words
):
    import tensorflow as tf

    record = tf.train.SequenceExample()
    step = record.feature_lists.feature_list["clicks"].feature.add()
    step.int64_list.value.extend([1, 2])
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as file:
        file.write(record.SerializeToString())
    assert cli.main([words[0], str(path), *words[1:]]) == 2
    error = capsys.readouterr().err
    assert "record 1: is a SequenceExample with a list that has not one" in error
    assert "write the workload by hand, with `data.step_lengths: [LIST]`" in error


def test_a_label_spelled_as_missing_is_none(tmp_path, monkeypatch):
    columns_of(tmp_path, {"x": NUMBERS, "vote": repeated("yes", "no", "NA", "no")})
    monkeypatch.chdir(tmp_path)
    words = ["init", "table.csv", "--label", "vote", "--no-fit"]
    assert cli.main(words) == 0
    config = loading.load(tmp_path / "table" / "pipeline.yaml").config
    assert config.evaluator.task == "binary"
    assert config.data.csv.nulls == ("NA",)
    assert config.data.unlabelled == "drop"


def test_the_yaml_names_the_schema_from_which_editors_know_its_keys(
    tmp_path, monkeypatch, capsys
):
    jsonschema = pytest.importorskip("jsonschema")  # not in the newer stack
    columns_of(tmp_path, {"bought": repeated(0, 1), "x": NUMBERS})
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "table.csv", "--label", "bought", "--no-fit"]) == 0
    text = Path("table/pipeline.yaml").read_text()
    name = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    schema = Path("table", name).read_text()
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    wrong = yaml.safe_load(text.replace("epochs:", "epoch:"))
    assert "'epoch' was unexpected" in str(next(validator.iter_errors(wrong)))
    capsys.readouterr()
    assert cli.main(["docs", "--schema"]) == 0
    assert capsys.readouterr().out == schema


def test_data_shows_types_gaps_ranges_and_doubts(tmp_path, capsys):
    table = {"id": range(ROWS), "x": [*NUMBERS[1:], ""], "y": repeated("a", "b")}
    table["z"] = ["-inf", "inf", *NUMBERS[2:]]
    columns_of(tmp_path, table)
    assert cli.main(["data", str(tmp_path / "table.csv"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["rows"], shown["all_rows"]) == (ROWS, True)
    by_name = {each["name"]: each for each in shown["columns"]}
    assert by_name["id"]["doubt"] == "numbers the rows"
    assert by_name["x"]["missing"] == 1
    assert by_name["x"]["range"] == pytest.approx(
        [NUMBERS[1:].min(), NUMBERS[1:].max()], rel=1e-6
    )
    assert by_name["z"]["doubt"] == "2 NaN or infinite numbers"
    assert by_name["y"]["examples"] == ["a", "b"]
    assert cli.main(["data", str(tmp_path / "table.csv")]) == 0
    assert "numbers the rows" in capsys.readouterr().out


def test_a_folder_is_read_whole_if_its_files_have_one_format(tmp_path):
    for number in range(3):
        table = pa.table({"x": [number] * 10, "v": [[1.0, 2.0]] * 10})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    rows = sample.read(str(tmp_path))
    assert rows.columns["x"].flatten().to_pylist() == [0] * 10 + [1] * 10 + [2] * 10
    assert Column(rows, "v").length == 2
    (tmp_path / "more.csv").write_text("x\n1\n")
    with pytest.raises(BadInputError, match="one format"):
        sample.read(str(tmp_path))


def test_a_column_of_later_rows_is_seen(tmp_path):
    rows = [{"x": each % 7, "text": 30 * "word "} for each in range(4000)]
    rows[-1] |= {"late": 1.5, "tags": ["a", "b"]}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert path.stat().st_size > 2 * undeclared._HEAD_BYTES
    read = sample.read(str(path))
    assert Column(read, "late").present.to_pylist() == [1.5]
    assert Column(read, "tags").is_list
    assert Column(read, "tags").missing == len(rows) - 1


def test_a_sample_is_from_all_parts_of_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "MOST_ROWS", 10_000)
    monkeypatch.setattr(sample, "_PART_BYTES", 1 << 16)
    path = tmp_path / "large.csv"
    path.write_text("x\n" + "".join(f"{each:08d}1\n" for each in range(200_000)))
    rows = sample.read(str(path), ["x"])
    assert not rows.is_whole
    assert rows.rows == 10_000
    first, last = (rows.columns["x"][place][0].as_py() for place in (0, -1))
    assert int(first) < 10_000 * 10
    assert int(last) > 1_000_000  # of 2,000,000

"""Checks that need the file system, and the time that they take."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from strategos.pipeline.checks import files
from strategos.pipeline.config.loading import ConfigError, load
from strategos.pipeline.run import preparation


def check(config, **where) -> list:
    return files.check(config, config.data.listing(), **where)


def found(path: Path, *sets: str) -> list:
    return check(load(path, sets=sets).config)


def only(path: Path, *sets: str):
    problems = found(path, *sets)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_a_whole_workload_has_no_problems(workload):
    assert found(workload, "schema.file=schema.pbtxt") == []


def test_a_missing_module_names_those_there(workload):
    problem = only(workload, "trainer.module=modle")
    assert str(problem.place) == "--set trainer.module=modle"
    assert "modules there: model, preprocessing" in str(problem)
    assert "Did you mean `model`?" in str(problem)


def test_declared_files_must_exist(workload):
    declared = "trainer.files=[model.py, data, 'span-*']"
    problem = only(workload, declared, "transform.files=[data/**/*.csv]")
    assert "trainer.files" in str(problem) and "received span-*;" in str(problem)


def test_data_of_another_format_than_their_names_say(workload):
    path = workload.parent / "data" / "span-2" / "a.csv"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert "a.csv: is compressed by gzip, not CSV. Let" in str(only(workload))


def test_a_pattern_without_files_names_what_is_near(workload):
    problem = only(workload, "data.examples=data/spam-{SPAN}/*.csv")
    assert problem.key == "data.examples"
    assert "matches no file" in str(problem) and "span-1/" in str(problem)


def test_missing_data_are_fine_where_they_can_be_made(write, workload):
    sets = ["data.examples=made/{SPAN}.csv", "data.prepare=make:flights"]
    write("make.py", "def flights(folder): ...\n")
    assert found(workload, *sets) == []
    write("make.py", "def other(folder): ...\n")
    assert "has no function `flights`" in str(only(workload, *sets))
    assert "no function `prepare`" in str(only(workload, sets[0], "data.prepare=make"))


def test_a_malformed_pattern_is_rejected_even_where_data_can_be_made(write, workload):
    write("make.py", "def prepare(folder): ...\n")
    problem = only(workload, "data.examples=made/{SPAM}.csv", "data.prepare=make")
    assert "{SPAM} is not a placeholder" in str(problem)


def test_spans_that_are_not_there_are_rejected(workload):
    problem = only(workload, "data.spans=7..9")
    assert problem.key == "data.spans"
    assert "there are: 1, 2" in str(problem)


def test_files_of_another_format_are_rejected(write, workload):
    write("data/span-1/b.txt", "")
    problem = only(workload, "data.examples=data/span-{SPAN}/*")
    assert "b.txt has none of the supported formats" in str(problem)
    assert ".csv, .csv.bz2, .csv.gz" in str(problem)
    assert ".parquet" in str(problem)


def test_columns_that_the_data_do_not_have_are_rejected(workload):
    problems = found(
        workload,
        "label=lat",
        "data.split.keys=[tail, day]",
        "evaluator.slices=[carrier, origin]",
        "gates.features.carier.missing=0.1",
    )
    assert [problem.key for problem in problems] == [
        "label",
        "data.split.keys",
        "gates.features",
        "evaluator.slices",
    ]
    assert "has no column `carier`\n    Did you mean `carrier`?" in str(problems[2])
    assert "has no column `lat`\n    Did you mean `late`?" in str(problems[0])
    assert "Allowed: late, tail, carrier." in str(problems[1])


@pytest.mark.parametrize("key", ["label", "weight"])
def test_what_preprocessing_makes_may_be_label_or_weight(write, workload, key):
    write(
        "preprocessing.py",
        "def preprocessing_fn(inputs):\n"
        "    return {'big': inputs['tip'] > 0.2, 'tip' + '_xf': inputs['tip']}\n",
    )
    for name in ("big", "tip_xf"):
        assert not [
            each for each in found(workload, f"{key}={name}") if each.key == key
        ]
    problem = only(workload, f"{key}=bigger")
    assert (problem.key, "has no column `bigger`" in str(problem)) == (key, True)


@pytest.mark.parametrize(
    ("late", "is_fine"), [([[0], [1]], True), ([[0], [1, 0]], False)]
)
def test_several_labels_a_row_are_refused_before_the_run(workload, late, is_fine):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"late": late}), workload.parent / "a.parquet")
    problems = found(workload, "data.examples=a*.parquet")
    labels = [str(problem) for problem in problems if problem.key == "label"]
    assert bool(labels) != is_fine
    assert is_fine or "`late` has up to 2 values a row in" in labels[0]


def test_columns_of_parquet_files_are_read(workload):
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"tail": ["N1"], "carrier": ["UA"]})
    parquet.write_table(table, workload.parent / "a.parquet")
    problem = only(workload, "data.examples=a*.parquet")
    assert "a.parquet has no column `late`" in str(problem)


def test_lists_of_steps_that_the_data_do_not_have_are_rejected(workload):
    problem = only(workload, "data.step_lengths=[clicks]")
    assert problem.key == "data.step_lengths"
    assert "a.csv is no such file" in str(problem)
    import tensorflow as tf

    record = tf.train.SequenceExample()
    for name in ("late", "tail", "carrier"):
        record.context.feature[name].int64_list.value.append(1)
    for values in ([1, 2], []):
        step = record.feature_lists.feature_list["clicks"].feature.add()
        step.int64_list.value.extend(values)
    with tf.io.TFRecordWriter(str(workload.parent / "a.tfrecord")) as file:
        file.write(record.SerializeToString())
    records = "data.examples=a*.tfrecord"
    assert found(workload, records, "data.step_lengths=[clicks]") == []
    wrong = found(workload, records, "data.step_lengths=[clicks, click, tail]")
    assert [problem.key for problem in wrong] == ["data.step_lengths"] * 2
    assert "has no list `click`\n    Did you mean `clicks`?" in str(wrong[0])
    assert "has no list `tail` besides the feature of this name" in str(wrong[1])


def test_crosses_and_bins_of_unfit_columns_are_rejected(workload):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"late": [1, 0], "tail": ["N1", "N2"], "carrier": ["UA", "AA"]}
    parquet.write_table(pa.table(columns), workload.parent / "a.parquet")
    entry = "[carrier, {feature: tail, bins: [1]}]"
    sets = "data.examples=a*.parquet", "evaluator.bounds=null"
    problem = only(workload, *sets, f"evaluator.slices=[{entry}]")
    assert problem.key == "evaluator.slices"
    assert "`tail` is a text in" in str(problem) and "a.parquet" in str(problem)
    problem = only(workload, *sets, "evaluator.slices=[[carrier, tial]]")
    assert "has no column `tial`" in str(problem) and "`tail`" in str(problem)


def test_data_that_are_made_are_checked_before_the_first_node(write, workload):
    made = "carrier,tail\\nUA,N1\\n"
    write(
        "make.py",
        "import pathlib\n\ndef prepare(folder):\n"
        f"    pathlib.Path(folder, 'made.csv').write_text('{made}')\n",
    )
    sets = ["data.examples=made.csv", "data.prepare=make", "schedule=null"]
    config = load(workload, sets=sets).config
    data = config.data.listing()
    assert files.check(config, data) == []
    with pytest.raises(ConfigError, match=r"made.csv has no column `late`"):
        preparation.prepare_data(config, data)


def test_columns_of_compressed_files_are_read(workload):
    path = workload.parent / "packed" / "a.csv.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"tail,carrier\nN1,UA\n"))
    problem = only(workload, "data.examples=packed/*.csv.gz")
    assert "a.csv.gz has no column `late`" in str(problem)


def test_a_schema_file_is_read(write, workload):
    problem = only(workload, "schema.file=nothing.pbtxt")
    assert problem.key == "schema.file" and "nothing.pbtxt" in str(problem)
    write("broken.pbtxt", 'feature {\n  nam: "a"\n}\n')
    assert "broken.pbtxt:2:" in str(only(workload, "schema.file=broken.pbtxt"))


def test_columns_that_the_schema_does_not_have_are_rejected(write, workload):
    write("small.pbtxt", 'feature { name: "late" }\nfeature { name: "tail" }\n')
    problem = only(workload, "schema.file=small.pbtxt")
    assert "small.pbtxt has no column `carrier`" in str(problem)


@pytest.mark.parametrize("key", ["run.root", "pusher.to"])
def test_a_folder_below_a_file_is_rejected(workload, key):
    problem = only(workload, f"{key}=model.py/below")
    assert problem.key == key and "model.py is not a folder" in str(problem)


@pytest.fixture
def as_nobody():
    """A context in which the process has another user id: root may write everywhere."""

    @contextlib.contextmanager
    def become():
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    return become


def test_a_root_that_cannot_be_written_is_rejected(workload, as_nobody):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # pytest's own folders are closed to others
        copy = shutil.copytree(workload.parent, Path(folder) / "copy")
        copy.chmod(0o755)
        config = load(
            copy / "pipeline.yaml", sets=["run.root=/usr/runs", "pusher=null"]
        ).config
        check(config)  # what it imports lazily may be closed to others too
        with as_nobody():
            (problem,) = check(config)
    expected = "--set run.root=/usr/runs: run.root: /usr cannot be written"
    assert str(problem).startswith(expected)


def test_models_are_not_pushed_over_the_root(workload):
    problem = only(workload, "pusher.to=out", "run.root=out/runs")
    assert problem.key == "pusher.to" and "over the root" in str(problem)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("run.root=/", "received /; this folder holds"),
        ("pusher.to=data", "models must not be pushed among the data"),
        ("trainer.module=os", "`os` is a module of Python"),
    ],
)
def test_a_place_that_cannot_be_meant_is_rejected(workload, setting, message):
    key = setting.partition("=")[0]
    (problem,) = [each for each in found(workload, setting) if each.key == key]
    assert message in str(problem)


@pytest.mark.parametrize("key", ["run.root", "pusher.to"])
def test_a_remote_folder_of_unknown_kind_is_rejected(workload, key):
    server = "run.metadata=mysql://me@host/db"
    problem = only(workload, f"{key}=ftp://host/runs", server)
    assert problem.key == key and "ftp:// is not known" in str(problem)
    assert not check(load(workload, sets=[f"{key}=gs://bucket/x", server]).config)


@pytest.mark.parametrize("key", ["data.examples", "schema.file"])
def test_an_object_that_cannot_be_read_is_named_with_its_key(
    workload, key, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("S3_ENDPOINT", closed)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    problem = only(workload, f"{key}=s3://bucket/folder/x")
    assert problem.key == key and "s3://bucket/folder" in str(problem)
    assert "check the bucket, and the credentials: AWS_" in str(problem)


def test_nothing_heavy_is_imported(workload):
    code = (
        "import sys\n"
        "from strategos.pipeline.config.loading import load\n"
        "from strategos.pipeline.checks.files import check\n"
        f"config = load({str(workload)!r}, sets=['schema.file=schema.pbtxt']).config\n"
        "assert not check(config, config.data.listing())\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'pandas', 'numpy', 'pyarrow',\n"
        "         'tensorflow_transform', 'ml_metadata', 'google.cloud.aiplatform'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_a_model_to_start_from_that_is_not_there_is_rejected(workload, tmp_path):
    problem = only(workload, "trainer.warm_start=old/4")
    assert problem.key == "trainer.warm_start"
    assert "4/Format-Weights" in str(problem) and "Trainer/model" in str(problem)
    (tmp_path / "old" / "4" / "Format-Weights").mkdir(parents=True)
    assert found(workload, "trainer.warm_start=old/4") == []
    assert found(workload, "trainer.warm_start=old/4/Format-Weights") == []
    assert found(workload, "trainer.warm_start=latest") == []
    remote = ("run.metadata=mysql://user@host:1/database", "run.root=gs://bucket/a")
    assert found(workload, *remote, "trainer.warm_start=s3://bucket/old/4") == []


@pytest.mark.parametrize(
    ("header", "remedy"),
    [
        ("tail, late", "The header has ' late': remove the spaces in the file."),
        ("tail,Late", "Write `Late` there: upper and lower case count."),
    ],
)
def test_a_header_that_is_spelled_otherwise_is_named(write, workload, header, remedy):
    write("odd/a.csv", f"{header}\nx,1\n")
    (problem,) = [
        each
        for each in found(workload, "data.examples=odd/*.csv")
        if each.key == "label"
    ]
    assert remedy in str(problem)


@pytest.mark.parametrize("name", ["x{a}", "v [2]"])
def test_a_folder_with_signs_of_patterns_is_named(workload, tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(workload.parent, folder, ignore=shutil.ignore_patterns(name))
    problems = found(folder / workload.name, f"run.root={tmp_path / 'runs'}")
    (problem,) = [each for each in problems if each.key == "data.examples"]
    assert f"Rename the folder {folder}: " in str(problem)

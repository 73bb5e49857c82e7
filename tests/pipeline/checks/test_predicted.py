"""Mistakes in the section `predict` that `strategos validate` names."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.pipeline.checks import cluster, files
from strategos.pipeline.config import loading
from strategos.pipeline.config.problems import ConfigError


@pytest.fixture
def found(workload, write):
    """Problems of a section by key: `found(**section)`."""
    write("new/1.csv", "tail,carrier\nN1,UA\n")
    write("new/2.csv", "tail,carrier\nN1,UA\n")
    write("header.csv", "tail,carrier\n")
    write("blank.csv", "tail,carrier\r\n\r\n\n")

    def check(*sets, **section):
        settings = {"data": "new/{SPAN}.csv", "to": "scored", **section}
        sets = (f"predict={json.dumps(settings)}", *sets)
        try:
            config = loading.load(workload, (), sets).config
        except ConfigError as error:
            return {each.key: str(each) for each in error.problems}
        problems = files.check(config, config.data.listing())
        return {each.key: str(each) for each in problems}

    return check


def test_a_section_without_mistakes_has_no_problem(found):
    assert found() == {}
    assert found(spans="1..2", format="csv", columns=["tail"]) == {}
    assert found(data="new/*.csv", to="new-scored", spans="all") == {}


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ({"data": "none/{SPAN}.csv"}, "predict.data", "matches no file"),
        ({"data": "ftp://x/{SPAN}.csv"}, "predict.data", "ftp"),
        ({"data": "header.csv"}, "predict.data", "has a header but no row"),
        ({"data": "blank.csv"}, "predict.data", "has a header but no row"),
        ({"data": "*.py"}, "predict.data", "none of the supported formats"),
        ({"spans": "7"}, "predict.spans", "no span is in '7'; there are: 1, 2"),
        ({"spans": "latest 3"}, "predict.spans", "there are 2 spans"),
        ({"spans": 1, "data": "new/*.csv"}, "predict.spans", "has no spans"),
        ({"columns": ["tale"]}, "predict.columns", "Did you mean `tail`?"),
        ({"format": "xml"}, "predict.format", "Allowed: parquet, csv, jsonl"),
        ({"to": "new"}, "predict.to", "the files to predict are in it"),
        ({"to": "runs/scored"}, "predict.to", "must be apart from"),
        ({"to": "data/a", "data": "**/*.csv"}, "predict.to", "`predict.data` matches"),
        ({"to": "ftp://x/y"}, "predict.to", "ftp"),
    ],
)
def test_a_mistake_is_named_by_its_key(found, section, key, message):
    problems = found(**section)
    assert message in problems[key]
    assert "Traceback" not in problems[key]


def test_files_without_rows_are_named_unless_another_has_some(found, workload):
    table = pa.table({"tail": ["N1"], "carrier": ["UA"]})
    (workload.parent / "tables").mkdir()
    for name, part in (("1", table[:0]), ("2", table)):
        pq.write_table(part, workload.parent / "tables" / f"{name}.parquet")
    problems = found(data="tables/1.parquet")
    assert "1.parquet; no file has a row" in problems["predict.data"]
    assert found(data="tables/*.parquet") == {}


def test_predictions_are_never_read_as_data(found):
    deep = 'data.examples="**/*.csv"'
    assert "`data.examples` matches files in it" in found(deep)["predict.to"]


def test_files_that_the_workload_makes_may_be_missing(found, write):
    write("made.py", "def prepare(folder):\n    ...\n")
    assert found("data.prepare=made", data="later/{SPAN}.csv") == {}


def test_a_model_on_trial_predicts_nothing(found):
    pushed = "pusher={to: serving, canary: trial}"
    assert "predicts with models that are live only" in found(pushed)["predict"]
    assert "models must" not in str(found("pusher.to=serving", to="serving/x"))
    assert "`pusher.to`" in found("pusher.to=serving", to="serving/x")["predict.to"]


@pytest.mark.parametrize(
    ("target", "section", "pushed"),
    [
        ("kubeflow", "{image: i, volumes: [{claim: c, path: /mnt/v}]}", "/mnt/v/s"),
        ("vertex", "{image: i, project: p, root: gs://b}", "gs://b/s"),
    ],
)
def test_steps_read_and_write_only_where_the_cluster_does(
    workload, write, tmp_path, target, section, pushed
):
    write("new/1.csv", "tail,carrier\nN1,UA\n")

    def keys(data, to):
        sets = [f"{target}={section}", f"pusher.to={pushed}"]
        sets += [f"predict.data={data}", f"predict.to={to}"]
        config = loading.load(workload, (), sets).config
        found = cluster.check(config, config.data.listing(), target)
        return {each.key for each in found}

    fine = "/mnt/v/scored" if target == "kubeflow" else "gs://b/scored"
    assert keys("new/{SPAN}.csv", fine) == set()
    assert keys("gs://b/new/{SPAN}.csv", fine) == set()
    outside = tmp_path.parent / "elsewhere"
    outside.mkdir(exist_ok=True)
    (outside / "1.csv").write_text("tail,carrier\nN1,UA\n")
    assert keys(f"{outside}/{{SPAN}}.csv", "scored") == {"predict.data", "predict.to"}

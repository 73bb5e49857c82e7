"""`strategos anomalies`: the rows that a schema forbids, beside pandas."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from strategos.pipeline import cli

SCHEMA = """
feature {
  name: "x" type: INT int_domain { min: 0 max: 8 } presence { min_fraction: 1 }
}
feature { name: "z" type: FLOAT float_domain { max: 1.5 } }
feature { name: "c" type: BYTES domain: "letters" }
feature { name: "late" type: INT }
string_domain { name: "letters" value: "a" value: "b" }
"""
YAML = """
label: late
data: {examples: "data/*.csv"}
schema: {file: schema.pbtxt}
transform: {module: preprocessing}
trainer: {module: model}
"""


@pytest.fixture
def rows(workload, tmp_path, monkeypatch):
    """A workload with forbidden values in two files; their places, by pandas."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(YAML)
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    random, expected = np.random.default_rng(0), set()
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        frame = pd.DataFrame(
            {
                "x": pd.array(random.integers(0, 10, 300), "Int64"),
                "z": random.random(300).round(2) * 1.6,
                "c": random.choice(["a", "b", "C"], 300, p=[0.6, 0.37, 0.03]),
                "late": random.integers(0, 2, 300),
            }
        )
        frame.loc[random.random(300) < 0.02, "x"] = None
        path = tmp_path / "data" / name
        frame.to_csv(path, index=False)
        forbidden = {
            "x": frame["x"].isna() | (frame["x"] > 8).fillna(False),
            "z": frame["z"] > 1.5,
            "c": frame["c"] == "C",
        }
        for column, bad in forbidden.items():
            lines = np.flatnonzero(bad) + 2
            expected |= {(str(path), f"line {line}", column) for line in lines}
    return expected


def test_all_rows_are_written_by_file_line_and_column(rows, tmp_path, capsys):
    assert cli.main(["anomalies", "--rows", "found.jsonl"]) == 3
    lines = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    found = [(line["file"], line["place"], line["column"]) for line in lines]
    assert len(found) == len(rows) and set(found) == rows
    output = capsys.readouterr()
    counts = {name: sum(row[2] == name for row in rows) for name in "xzc"}
    for name, count in counts.items():
        assert f"`{name}`: {count} values that the schema forbids" in output.out
    shown = [line for line in output.out.splitlines() if line.startswith("  ")]
    assert len(shown) == 9  # three of each column
    assert any("'C': not in the domain `letters`" in line for line in shown)
    assert "found.jsonl: all of them" in output.err
    assert cli.main(["anomalies", "--json"]) == 3
    listed = json.loads(capsys.readouterr().out)
    assert listed["features"] == counts and listed["unreadable_rows"] == 0
    assert listed["first"] == [line.strip() for line in shown]


def test_data_that_fit_have_no_rows(rows, tmp_path, capsys):
    for file in (tmp_path / "data").iterdir():
        file.write_text("x,z,c,late\n1,0.5,a,1\n")
    assert cli.main(["anomalies"]) == 0
    assert capsys.readouterr().out == "The schema forbids no value of the data.\n"


def test_values_of_another_type_are_among_the_rows(rows, tmp_path, capsys):
    (tmp_path / "data" / "a.csv").write_text("x,z,c,late\n1,0.5,a,1\nmany,0.5,a,1\n")
    assert cli.main(["anomalies", "--rows"]) == 3
    text = (tmp_path / "anomalies.jsonl").read_text()
    last = json.loads(text.splitlines()[-1])
    assert last["place"] == "line 3" and "many" in last["text"]
    assert "1 row that cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "pipeline.yaml"], "--rows: received pipeline.yaml; the file of"),
        (["--set", "schema.file=null"], "schema.file: no schema file is set"),
    ],
)
def test_what_cannot_be_searched_is_rejected(rows, tmp_path, capsys, words, message):
    assert cli.main(["anomalies", *words]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "pipeline.yaml").read_text() == YAML

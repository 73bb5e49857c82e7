"""`strategos predict --output FOLDER`: files, folder, manifest, refusals and kills."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from strategos.pipeline import cli

WAIT_SECONDS = 300


def write(path: Path, first: int = 0, rows: int = 40) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{n},AA,{n % 24}" for n in range(first, first + rows)]
    path.write_text("\n".join(["id,carrier,hour", *lines]) + "\n")
    return path


def ids(folder: Path) -> list[int]:
    return [int(x) for x in pq.read_table(folder)["id"].to_pylist()]


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "_manifest.json").read_text())


def test_a_folder_of_files_is_predicted_with_a_manifest(predict, tmp_path, capsys):
    data = write(tmp_path / "in" / "b.csv", 40), write(tmp_path / "in" / "a.csv")
    (tmp_path / "in" / "_SUCCESS").touch()
    assert predict("in", "--output", "out", "--columns", "id,hour") == 0
    assert "80 rows predicted by version 10 in" in capsys.readouterr().out
    assert ids(tmp_path / "out") == list(range(80))
    manifest = manifest_of(tmp_path / "out")
    assert manifest["rows"] == 80 and manifest["rejected"] == 0
    assert manifest["files"][0]["rows"] == 80
    file = tmp_path / "out" / manifest["files"][0]["name"]
    assert manifest["files"][0]["bytes"] == file.stat().st_size
    assert [x["name"] for x in manifest["columns"][:2]] == ["id", "hour"]
    assert manifest["model"]["version"] == 10
    for about, path in zip(manifest["data"], sorted(data), strict=True):
        assert about["path"] == str(path)
        assert about["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [x.name for x in (tmp_path / "out").iterdir() if x.name[0] == "."] == []
    assert predict("in", "--output", "out") == 2
    assert "has the predictions of an earlier command" in capsys.readouterr().err


def test_bad_rows_stop_the_command_or_are_set_aside(predict, tmp_path, capsys):
    path = write(tmp_path / "rows.csv")
    path.write_text(path.read_text().replace("\n7,AA,7\n", "\n7,AA,x\n"))
    words = ("rows.csv", "--output", "out", "--columns", "id")
    assert predict(*words) == 2
    assert "rows.csv: line 9: column `hour`: received 'x'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    words += ("--set", "data.on_bad_row=quarantine", "--format", "csv")
    assert predict(*words) == 1
    assert "1 of 40 rows cannot be read" in capsys.readouterr().err
    assert predict(*words, "--set", "data.max_bad_fraction=0.1") == 0
    assert "1 row rejected, in out/_rejected" in capsys.readouterr().out
    manifest = manifest_of(tmp_path / "out")
    assert (manifest["rows"], manifest["rejected"]) == (39, 1)
    (kept,) = (tmp_path / "out" / "_rejected").iterdir()
    assert json.loads(kept.read_text())["place"] == "line 9"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no rows to predict"),
        ("rows.csv --spans 1", "both files and --spans"),
        ("- --output out", "standard input is read once"),
        ("nowhere.csv", "nowhere.csv matches no file"),
        ("empty", "the folder has no data file"),
        ("mixed", "README has no format that is known"),
        ("rows.csv --columns id,houre", "rows.csv: --columns: no column `houre`"),
        ("short.csv", "short.csv: the model needs column hour"),
        ("typed.csv", "typed.csv: unknown column houri"),
        ("rows.csv --output full", "the folder has `notes.txt`"),
        ("in/rows.csv --output in", "--output: received"),
        ("rows.csv --output rows.csv", "--output: received"),
        ("rows.csv --output /proc/out", "--output: received /proc/out"),
        ("rows.csv --model 9", "has no such version"),
        ("rows.csv --columns score", "no column `score`"),
        ("scored.csv --columns score", "have a column `score`, too"),
        ("rows.csv --json", "--json and --bad-rows are for"),
        ("rows.xlsx", "the format of this file is not supported"),
    ],
)
def test_bad_input_is_one_message(predict, tmp_path, capsys, words, message):
    write(tmp_path / "rows.csv")
    write(tmp_path / "in" / "rows.csv")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "mixed" / "rows.csv")
    (tmp_path / "mixed" / "README").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    (tmp_path / "rows.xlsx").write_text("x")
    (tmp_path / "short.csv").write_text("carrier\nAA\n")
    (tmp_path / "typed.csv").write_text("carrier,houri\nAA,1\n")
    (tmp_path / "scored.csv").write_text("carrier,hour,score\nAA,1,3\n")
    given = words.split()
    if "--output" not in given:
        given += ["--output", "out"]
    assert predict(*given) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not list(tmp_path.glob("out/*"))


def test_what_only_reading_shows_publishes_nothing(predict, tmp_path, capsys):
    (tmp_path / "none.csv").write_text("carrier,hour\n")
    (tmp_path / "typed.jsonl").write_text('{"carrier": "AA", "hour": 1, "tempo": 2}\n')
    (tmp_path / "cut.csv").write_text('carrier,hour\nAA,1\n"AA,2\n')
    for name, message in {
        "none.csv": "none.csv: has a header but no row",
        "typed.jsonl": "unknown column tempo",
        "cut.csv": "line 3: expected 2 fields",
    }.items():
        assert predict(name, "--output", "out") in (1, 2)
        assert message in capsys.readouterr().err
        assert not list(tmp_path.glob("out/[!.]*"))


def test_spans_of_the_data_are_predicted(predict, project, tmp_path):
    for span in (1, 2, 3):
        write(project / "data" / f"span-{span}" / "rows.csv", 100 * span, 5)
    words = ("--spans", "2..3", "--output", "out", "--columns", "id")
    assert predict(*words, "--model", "10") == 0
    wanted = [*range(200, 205), *range(300, 305)]
    assert ids(tmp_path / "out") == wanted


@pytest.mark.parametrize("option", ["--format csv", "--spans 1", "b.csv"])
def test_options_of_files_need_an_output(predict, capsys, option):
    assert predict("a.csv", *option.split()) == 2
    assert "Add `--output FOLDER`" in capsys.readouterr().err


def large(folder: Path) -> Path:
    """A file of some shards, each of a second or more."""
    draw, rows = np.random.default_rng(5), 700_000
    made = {
        "id": np.arange(rows),
        "carrier": draw.choice(["AA", "B6", "ZZ"], rows),
        "hour": draw.integers(0, 24, rows),
        "temp": draw.normal(10, 9, rows),
    }
    pyarrow.csv.write_csv(pa.table(made), folder / "large.csv")
    return folder / "large.csv"


@pytest.mark.faults
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_goes_on_where_it_was(project, tmp_path, sig, capsys):
    out = tmp_path / "out"
    words = ["predict", str(project / "pipeline.yaml"), str(large(tmp_path))]
    words += ["--output", str(out), "--columns", "id", "--set", "run.engine.workers=1"]
    command = [sys.executable, "-m", "strategos.pipeline.cli", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + WAIT_SECONDS
    while not list(out.glob(".predicting-*/00001.json")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(sig)
    _, said = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == (130 if sig == signal.SIGINT else -sig)
    assert "Traceback" not in said
    (staging,) = out.glob(".predicting-*")
    records = sorted(staging.glob("0*.json"))
    kept = [(staging / f"part-{x.stem}").stat().st_ino for x in records]
    assert not list(out.glob("predictions-*"))
    assert not (out / "_manifest.json").exists()
    other = ["--set", "run.engine.workers=2", "--columns", "id"]
    with contextlib.redirect_stderr(None):
        assert cli.main([*words, *other]) == 0
    files = sorted(out.glob("predictions-*"))
    assert len(files) > len(kept) > 1
    assert [x.stat().st_ino for x in files[: len(kept)]] == kept
    assert ids(out) == list(range(700_000))
    assert manifest_of(out)["rows"] == 700_000
    assert sorted(x.name[0] for x in out.iterdir()) == ["_", *"p" * len(files)]


@pytest.mark.faults
def test_a_limit_on_files_is_named_and_nothing_is_published(project, tmp_path):
    script = 'ulimit -f 1500; exec "$@"'
    out = tmp_path / "out"
    words = ["predict", str(project / "pipeline.yaml"), str(large(tmp_path))]
    words += ["--output", str(out), "--format", "jsonl"]
    command = [
        "bash",
        "-c",
        script,
        "-",
        sys.executable,
        "-m",
        "strategos.pipeline.cli",
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "may not exceed 1,536,000 bytes here, by `ulimit -f`" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(out.glob("predictions-*"))

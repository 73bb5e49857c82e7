"""Batch prediction from and to an object store."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from strategos.components.files import storage

pytestmark = pytest.mark.long


def test_files_of_a_bucket_are_predicted_to_it(predict, bucket, tmp_path, capsys):
    for first, name in ((0, "a.csv"), (40, "b.csv")):
        lines = [f"{n},AA,{n if n % 39 else 'x'}" for n in range(first, first + 40)]
        storage.write(f"{bucket}/in/{name}", "\n".join(["id,carrier,hour", *lines]))
    words = ("--columns", "id", "--output", f"{bucket}/out")
    assert predict(f"{bucket}/in", *words) == 2
    assert "a.csv: line 2: column `hour`" in capsys.readouterr().err
    words += ("--set", "data.on_bad_row=quarantine", "--set", "data.max_bad_fraction=1")
    assert predict(f"{bucket}/in/*.csv", *words) == 0
    storage.get(f"{bucket}/out", str(tmp_path / "out"))
    found = sorted(
        x.relative_to(tmp_path / "out") for x in tmp_path.rglob("out/**/*.*")
    )
    names = ["_manifest.json", "_rejected/00000.jsonl"]
    assert [*map(str, found)] == [*names, "predictions-00000-of-00001.parquet"]
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["rejected"]) == (77, 3)
    assert [x["path"] for x in manifest["data"]] == [
        f"{bucket}/in/{name}.csv" for name in "ab"
    ]
    ids = pq.read_table(tmp_path / "out" / found[-1].name)["id"].to_pylist()
    assert ids == [str(n) for n in range(80) if n % 39]
    assert predict(f"{bucket}/in", *words) == 2
    assert "has the predictions of an earlier command" in capsys.readouterr().err

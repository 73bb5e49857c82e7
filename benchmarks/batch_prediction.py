"""Compares `strategos predict --output` with a plain loop over the same SavedModel.

    python benchmarks/batch_prediction.py examples/flights/pipeline.yaml --rows 1000000

Takes the pushed model of a pipeline that was run, and repeats the rows of its data as
one Parquet file. The plain loop reads batches of 4,096 rows by Arrow, gives the columns
as tensors to the signature `predict`, and writes Parquet: all that a script would do,
and no more. Both predict the same rows to the same values, which is checked. Prints CPU
seconds (user and system, all processes, imports included), wall seconds and the peak
memory: medians of `--repeat` turns, and the ratio of each turn's CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from whole_run import measure

from strategos.components import exported, processes

BATCH = 4096
PLAIN = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import pyarrow as pa, pyarrow.parquet as pq, tensorflow as tf

model, source, target, batch = *sys.argv[1:4], int(sys.argv[4])
predict = tf.saved_model.load(model).signatures["predict"]
specs = predict.structured_input_signature[1]
missing = {tf.string: "", tf.int64: tf.int64.min}  # a null number becomes NaN
writer = None
for rows in pq.ParquetFile(source).iter_batches(batch, columns=[*specs]):
    inputs = {}
    for name, spec in specs.items():
        column = rows.column(rows.schema.get_field_index(name))
        if column.null_count and spec.dtype in missing:
            column = column.fill_null(missing[spec.dtype])
        values = column.to_numpy(zero_copy_only=False)
        inputs[name] = tf.constant(values, spec.dtype)[:, None]
    (answer,) = predict(**inputs).values()
    column = pa.array(answer.numpy()[:, 0])
    table = pa.table({"predictions": column})
    writer = writer or pq.ParquetWriter(target, table.schema)
    writer.write_table(table)
writer.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    processes.adopt_orphans()  # so that the seconds of all processes count
    versions = arguments.pipeline.parent.glob(f"serving/*/*/{exported.SAVED_MODEL}")
    model = max(versions, key=lambda path: int(path.parent.name)).parent
    with tempfile.TemporaryDirectory() as scratch:
        rows = write(arguments.pipeline.parent, model, Path(scratch), arguments.rows)
        print(f"{arguments.rows:,} rows, {rows.stat().st_size / 1e6:.0f} MB of Parquet")
        costs: dict[str, list[measure.Cost]] = {"plain loop": [], "strategos": []}
        for number in range(arguments.repeat):
            out = Path(scratch, f"out-{number}")
            costs["plain loop"].append(plain(model, rows, Path(scratch)))
            costs["strategos"].append(ours(arguments.pipeline, rows, out))
            compare(out, Path(scratch, "plain.parquet"))
        report(costs)


def write(folder: Path, model: Path, scratch: Path, rows: int) -> Path:
    """Writes the rows of the data, repeated, with the types of the model's schema."""
    described = json.loads((model / exported.DESCRIPTION).read_text())
    files = sorted(folder.glob("data/**/*.csv"))
    convert = pyarrow.csv.ConvertOptions(
        null_values=["", *described["null_values"]], strings_can_be_null=True
    )
    read = (pyarrow.csv.read_csv(file, convert_options=convert) for file in files)
    table = pa.concat_tables(read, promote=True)
    table = pa.concat_tables([table] * -(-rows // table.num_rows)).slice(0, rows)
    pq.write_table(table, scratch / "rows.parquet", row_group_size=1 << 16)
    return scratch / "rows.parquet"


def plain(model: Path, rows: Path, scratch: Path) -> measure.Cost:
    target = str(scratch / "plain.parquet")
    script = [sys.executable, "-c", PLAIN, str(model), str(rows), target, str(BATCH)]
    return measure.run(script, scratch / "plain.log")[0]


def ours(pipeline: Path, rows: Path, out: Path) -> measure.Cost:
    command = [str(Path(sys.executable).with_name("strategos")), "predict"]
    words = [str(pipeline), str(rows), "--output", str(out)]
    return measure.run([*command, *words], out.with_suffix(".log"))[0]


def compare(out: Path, file: Path) -> None:
    """Rejects predictions that differ by more than the order of sums explains."""
    sides = (pq.read_table(path)["predictions"].to_numpy() for path in (out, file))
    np.testing.assert_allclose(*sides, rtol=1e-4, atol=1e-6)


def report(costs: dict[str, list[measure.Cost]]) -> None:
    print("| | CPU s | wall s | peak MB |")
    print("| --- | --- | --- | --- |")
    for name, each in costs.items():
        cpu, wall = (
            statistics.median(getattr(x, kind) for x in each)
            for kind in ("cpu", "wall")
        )
        memory = statistics.median(x.memory for x in each) / 1e6
        print(f"| {name} | {cpu:.1f} | {wall:.1f} | {memory:.0f} |")
    pairs = zip(costs["strategos"], costs["plain loop"], strict=True)
    ratios = [a.cpu / b.cpu for a, b in pairs]
    shown = ", ".join(f"{each:.2f}" for each in ratios)
    print(f"CPU of strategos by that of the plain loop: {shown}")


if __name__ == "__main__":
    try:
        main()
    except (measure.Failed, subprocess.SubprocessError) as error:
        sys.exit(str(error))

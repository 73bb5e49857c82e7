"""Real texts of very different lengths, in batches of similar length."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from strategos.components.user_code import modules

pytestmark = pytest.mark.matrix

_ROWS = 3_500


def test_a_network_tells_docstrings_of_four_libraries_apart(copy_example, tmp_path):
    docstrings = copy_example("docstrings", tmp_path)
    modules.load(str(docstrings.folder), "data").prepare(docstrings.folder)
    (file,) = (docstrings.folder / "data").glob("*.parquet")
    rows = pq.read_table(file)
    assert rows.num_rows > 10_000
    pq.write_table(rows.take([*range(0, rows.num_rows, rows.num_rows // _ROWS)]), file)
    docstrings.run(
        *("--set", "evaluator.bounds.accuracy={at_least: 0.45}"),
        *("--set", "trainer.epochs=3", "--set", "trainer.batch_size=32"),
    )
    run = docstrings.last_run()
    assert run["outcome"] == "blessed"
    assert run["metrics"]["accuracy"] > 0.45  # 0.32 for the most frequent library

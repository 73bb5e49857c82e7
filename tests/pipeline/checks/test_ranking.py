"""Metrics by query, checked on the first rows before a run."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from strategos.pipeline.checks.files import check
from strategos.pipeline.config.loading import load

SETS = [
    "data.examples=a*.parquet",
    "evaluator={metrics: [mrr], task: regression, bounds: null, slices: null}",
]
COLUMNS = {"late": [1, 0], "tail": ["N1", "N2"], "carrier": [1.0, 2.0]}


def only(workload, columns, query):
    """The only problem of a workload with these columns."""
    parquet.write_table(pa.table(columns), workload.parent / "a.parquet")
    sets = [*SETS, f"evaluator.query={query}"]
    config = load(workload, sets=sets).config
    (problem,) = check(config, config.data.listing())
    return problem


@pytest.mark.parametrize("carrier", [[1.0, 2.0], ["1.5", "2"]])
def test_queries_are_whole_numbers_or_texts(workload, carrier):
    problem = only(workload, {**COLUMNS, "carrier": carrier}, "carrier")
    assert problem.key == "evaluator.query"
    assert "`carrier` has numbers with decimals in" in str(problem)
    assert "whole numbers or texts" in str(problem)


@pytest.mark.parametrize("carrier", [["UA", "1.5"], ["1", "2"], [1, 2]])
def test_no_column_of_queries_is_rejected_for_its_values(workload, carrier):
    problem = only(workload, {**COLUMNS, "carrier": carrier}, "tial")
    assert problem.key == "evaluator.query" and "Did you mean `tail`?" in str(problem)
    found = {**COLUMNS, "carrier": carrier, "late": [0, 32]}
    assert only(workload, found, "carrier").key == "label"


@pytest.mark.parametrize(
    ("late", "received"),
    [([0, -1], "-1"), ([2.5, 45.5], "45.5"), (["0", "99"], "99")],
)
def test_labels_are_relevance(workload, late, received):
    problem = only(workload, {**COLUMNS, "late": late}, "tail")
    assert problem.key == "label" and f"received {received} as `late`" in str(problem)
    assert "relevance from 0 to 31" in str(problem)


@pytest.mark.parametrize(
    ("keys", "queries", "divided"),
    [
        ("[tail]", 10, True),
        ("[carrier, tail]", 10, True),
        ("[carrier]", 10, False),
        ("[most]", 10, False),
        ("[tail]", 9, False),
    ],
)
def test_a_split_by_other_keys_may_not_divide_queries(workload, keys, queries, divided):
    carrier = [f"C{i // 2}" for i in range(2 * queries)]
    most = ["", *carrier[1:]]  # differs within one query
    columns = {"carrier": carrier, "tail": range(2 * queries), "most": most}
    columns |= {"late": [0, 40] * queries}
    parquet.write_table(pa.table(columns), workload.parent / "a.parquet")
    sets = [*SETS, "evaluator.query=carrier"]
    sets.append(f"data.split={{by: hash, keys: {keys}}}")
    config = load(workload, sets=sets).config
    *found, of_label = check(config, config.data.listing())
    assert of_label.key == "label" and len(found) == divided
    for problem in found:
        assert problem.key == "evaluator.query"
        assert "`data.split.keys`" in str(problem)
        assert "most values of `carrier`" in str(problem)

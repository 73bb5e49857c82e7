"""docs/limits.md: its figures are those of the pages that measured them."""

from __future__ import annotations

import re
from pathlib import Path

from strategos.components.data_files.sources.names import MAX_COLUMNS
from strategos.components.evaluation.metrics import MOST_SLICES

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "limits.md").read_text()


def test_rows_of_the_comparison_stand_in_the_benchmarks():
    rows = re.findall(r"^\| [\d,]+ \| .*\|$", PAGE, re.M)
    assert len(rows) == 7
    assert {*rows} <= {*(DOCS / "benchmarks.md").read_text().splitlines()}


def test_means_of_the_year_follow_from_its_months():
    year = (DOCS / "year_of_flights.md").read_text()
    found = re.findall(r"^\| \w{3} \|.*" + r"\| (0\.\d+) " * 3 + r"\|$", year, re.M)
    live, first, scratch = (list(map(float, each)) for each in zip(*found, strict=True))
    means = [f"{sum(each) / len(each):.3f}" for each in (live, first, scratch)]
    assert re.findall(r"^\| .* \| (0\.\d+) \|$", PAGE, re.M) == means
    worse = sum(a < b for a, b in zip(live, first, strict=True))
    behind = sum(a < b for a, b in zip(live, scratch, strict=True))
    assert (len(live), worse, behind) == (10, 3, 7)
    assert len(re.findall(r"^\| bad: .* stopped \(exit 3\)", year, re.M)) == 5


def test_bounds_are_those_of_the_code():
    assert f"at most {MAX_COLUMNS:,} columns" in PAGE
    assert f"at most {MOST_SLICES:,} values" in PAGE

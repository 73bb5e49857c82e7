"""The section `statistics`, checked before a run."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from strategos.pipeline.checks.files import check
from strategos.pipeline.config.loading import ConfigError, load

COLUMNS = {"late": [1, 0], "tail": ["N1", "N2"], "carrier": ["AA", "UA"]}


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("{}", "statistics", "has no effect without `slices`"),
        ("{sample: 0.5}", "statistics.sample", "has no effect without `slices`"),
        ("{weighted: true}", "statistics.weighted", "the rows have no weight"),
        ("{slices: [a], sample: 0.0}", "statistics.sample", "received 0.0"),
        ("{slices: [a], sample: 1.5}", "statistics.sample", "received 1.5"),
        ("{slices: [[a, b], [b, a]]}", "statistics.slices.1", "is sliced by twice"),
        ("{slice: [a]}", "statistics.slice", "Did you mean `slices`?"),
    ],
)
def test_settings_without_effect_are_rejected(workload, section, key, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(workload, sets=[f"statistics={section}"])
    assert [each.key for each in caught.value.problems] == [key]


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("{slices: [carier]}", "statistics.slices", "Did you mean `carrier`?"),
        ("{slices: [[tail, x]]}", "statistics.slices", "no column `x`"),
        (
            "{slices: [{feature: tail, bins: [1]}]}",
            "statistics.slices",
            "`tail` is a text in",
        ),
        (
            "{weighted: true}",
            "statistics.weighted",
            "`made`, the `weight`: rows get it in Transform only",
        ),
    ],
)
def test_columns_that_the_rows_lack_are_rejected(
    workload, write, section, key, message
):
    parquet.write_table(pa.table(COLUMNS), workload.parent / "a.parquet")
    write("preprocessing.py", "def preprocessing_fn(x):\n    return {'made': x}\n")
    sets = ["data.examples=a*.parquet", "weight=made", "schema.file=null"]
    sets += ["evaluator=null", "label=late", f"statistics={section}"]
    config = load(workload, sets=sets).config
    (problem,) = check(config, config.data.listing())
    assert problem.key == key and message in str(problem)

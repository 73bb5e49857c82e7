"""Measurements of new spans that `strategos retrain` keeps."""

from __future__ import annotations

import pytest

from strategos.pipeline.config import loading
from strategos.pipeline.plan import caching
from strategos.pipeline.root.state import state_folder
from strategos.pipeline.run import span_measurements
from strategos.pipeline.run.span_measurements import ModelInProduction

pytestmark = pytest.mark.long


def test_a_span_is_measured_again_by_other_code_and_for_another_model(
    workload, tmp_path, monkeypatch
):
    sets = ("schedule={drift: {at_most: 0.2}}", f"run.root={tmp_path}/root")
    config = loading.load(workload, (), sets).config
    spans = config.data.listing().found
    kept = state_folder(config.run.root) / "span-statistics"
    served = tmp_path / "serving" / "1"
    served.mkdir(parents=True)

    def measured():
        model = ModelInProduction(str(served), [1], {})
        found = span_measurements.measure(config, spans, model)
        return found, len([*kept.glob("*.json")])

    first, number = measured()
    assert number == len(first) == len(spans) - 1 > 0
    assert measured() == (first, number)
    (served / "saved_model.pb").write_bytes(b"of a root that began anew")
    assert measured() == (first, 2 * number)
    versions = caching.stack_versions()
    monkeypatch.setattr(caching, "stack_versions", lambda: f"{versions}, other")
    assert measured() == (first, 3 * number)

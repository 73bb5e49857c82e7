"""Spans, and SpanValidator on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strategos.components.data_files import span_checks


@pytest.fixture
def gates():
    """The section `gates`; a test may change it."""
    return {
        "rows": {"at_least": 0.6, "at_most": 1.6},
        "missing": 0.2,
        "drift": {"at_most": 0.3, "features": {"when": 1.0}},
        "skew": {"at_most": 0.3, "features": {}},
        "on_anomaly": "stop",
    }


@pytest.fixture
def write(tmp_path):
    """Writes a span: `write(number, columns)`, None for a missing value."""

    def write(span, folder="data", **columns):
        file = tmp_path / folder / str(span) / "rows.csv"
        file.parent.mkdir(parents=True)
        rows = zip(*columns.values(), strict=True)
        lines = [",".join("" if v is None else str(v) for v in row) for row in rows]
        file.write_text("\n".join([",".join(columns), *lines]) + "\n")
        return file

    return write


@pytest.fixture
def validate(tmp_path, gates):
    """Runs SpanValidator: `validate(judged, usual)`; its report by (gate, feature)."""
    from tfx.types import standard_artifacts

    from strategos.components.span_validator import executor

    def validate(
        judged, usual, serving="", schema="", pattern="{SPAN}/rows.csv", others=None
    ):
        anomalies = standard_artifacts.ExampleAnomalies()
        anomalies.uri = str(tmp_path / "anomalies")
        used = dict(gates) if serving else {**gates, "skew": None}
        compared = {
            "judged": [[number, None, "f"] for number in judged],
            "usual": [[number, None, ""] for number in usual],
        }
        properties = {
            "pattern": str(tmp_path / "data" / pattern),
            "others": json.dumps({"gates.skew.serving": serving, **(others or {})}),
            "compared_spans": json.dumps(compared),
            "gates": json.dumps(used),
            "schema_file": schema,
            "schema_fingerprint": "",
            "null_values": "[]",
        }
        executor.Executor().Do({}, {"anomalies": [anomalies]}, properties)
        text = (tmp_path / "anomalies" / span_checks.FILE).read_text()
        found = json.loads(text)
        by_name = {(c["gate"], c["feature"]): c for c in found["checks"]}
        return anomalies, found, by_name

    return validate


@pytest.fixture(scope="session")
def columns():
    """Random columns of a span: `columns(rows, seed)`."""

    def make(rows, seed=0, late=0.25, mean=0.0, silent=False):
        random = np.random.default_rng(seed)
        return {
            "late": (random.random(rows) < late).astype(int),
            "delay": random.normal(mean, 1, rows).round(4),
            "carrier": [None] * rows if silent else random.choice(["A", "B"], rows),
            "when": np.arange(rows) + 1000 * seed,
        }

    return make

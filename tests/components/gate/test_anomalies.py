"""AnomalyGate after ExampleValidator; ImportSchemaGen before it."""

from __future__ import annotations

import json

import pytest

from strategos.components import events
from strategos.components.errors import GateStoppedError, UserError

SCHEMA = """
feature { name: "carrier" type: BYTES domain: "carriers" presence { min_count: 1 } }
feature { name: "distance" type: INT int_domain { min: 0 max: 5000 } }
string_domain { name: "carriers" value: "AA" value: "UA" }
"""


@pytest.fixture
def import_schema(tmp_path):
    """Runs ImportSchemaGen on a text; returns the artifact."""
    from tfx.types import standard_artifacts

    from strategos.components.import_schema_gen import executor

    def call(text):
        path = tmp_path / "curated.pbtxt"
        path.write_text(text)
        artifact = standard_artifacts.Schema()
        artifact.uri = str(tmp_path / "schema")
        properties = {"schema_file": str(path), "fingerprint": "1"}
        executor.Executor().Do({}, {"schema": [artifact]}, properties)
        return artifact

    return call


@pytest.fixture
def gate(tmp_path, import_schema):
    """Validates rows of two splits and runs the gate on the anomalies."""
    import pyarrow as pa
    from tfx.types import standard_artifacts

    from strategos.components.example_validator import executor as validator
    from strategos.components.gate import anomalies
    from strategos.components.statistics import generators

    def call(on_anomaly, **splits):
        statistics = standard_artifacts.ExampleStatistics()
        statistics.uri = str(tmp_path / "statistics")
        statistics.split_names = json.dumps(list(splits))
        for split, columns in splits.items():
            lists = {name: [[v] for v in values] for name, values in columns.items()}
            batch = pa.RecordBatch.from_pydict(lists)
            folder = tmp_path / "statistics" / f"Split-{split}"
            folder.mkdir(parents=True)
            computed = generators.compute(iter([batch]))
            (folder / "FeatureStats.pb").write_bytes(computed.SerializeToString())
        found = standard_artifacts.ExampleAnomalies()
        found.uri = str(tmp_path / "anomalies")
        validator.Executor().Do(
            {"statistics": [statistics], "schema": [import_schema(SCHEMA)]},
            {"anomalies": [found]},
            {"exclude_splits": "[]"},
        )
        data = tmp_path / "rows.csv"
        rows = (zip(*each.values(), strict=True) for each in splits.values())
        lines = [",".join(map(_text, row)) for each in rows for row in each]
        data.write_text("\n".join(["carrier,distance", *lines]) + "\n")
        properties = {
            "on_anomaly": on_anomaly,
            "pattern": str(data),
            "spans": "[[0, null]]",
            "null_values": "[]",
            "reading": "{}",
        }
        inputs = {"anomalies": [found], "schema": [import_schema(SCHEMA)]}
        anomalies.Executor().Do(inputs, {}, properties)

    return call


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


GOOD = {"carrier": [b"AA", b"UA"] * 10, "distance": [100, 200] * 10}
BAD = {"carrier": [b"AA", b"XX"] * 10, "distance": [100, 9000] * 10}


def test_data_that_fit_pass(gate):
    gate("stop", train=GOOD, eval=GOOD)


def test_anomalies_stop_and_name_feature_split_value_and_remedy(gate):
    with pytest.raises(GateStoppedError) as caught:
        gate("stop", train=GOOD, eval=BAD)
    message = str(caught.value)
    assert "the data show 2 anomalies" in message
    assert "split `eval`: feature `carrier`" in message
    assert "XX (~50%)" in message
    assert "split `eval`: feature `distance`" in message
    assert "9000" in message
    assert "train" not in message
    rows = [line.strip() for line in message.splitlines() if "rows.csv" in line]
    assert len(rows) == 10
    assert rows[0].endswith(
        "rows.csv: line 23: `carrier`: 'XX': not in the domain `carriers`"
    )
    assert rows[5].endswith(
        "rows.csv: line 23: `distance`: '9000': outside of the domain, 0 to 5000"
    )
    assert "rows, of which `strategos anomalies --rows` writes all:" in message
    assert "`schema.on_anomaly: warn`" in message


def test_warn_reports_and_goes_on(gate, tmp_path):
    log = tmp_path / "events.jsonl"
    events.open_sink(str(log), node="AnomalyGate")
    try:
        gate("warn", train=BAD, eval=GOOD)
    finally:
        events.open_sink(None)
    reported = [json.loads(line) for line in log.read_text().splitlines()]
    messages = [e["message"] for e in reported if e["event"] == "warning"]
    assert len(messages) == 2
    assert "split `train`: feature `carrier`" in messages[0]


def test_a_missing_column_stops(gate):
    with pytest.raises(GateStoppedError, match=r"`carrier`: Column dropped"):
        gate("stop", train={"distance": [1]}, eval=GOOD)


def test_components_fit_together():
    from tfx import types
    from tfx.types import standard_artifacts

    from strategos.components.gate.component import AnomalyGate
    from strategos.components.import_schema_gen.component import ImportSchemaGen
    from strategos.components.statistics_gen.component import StatisticsGen

    found = types.Channel(type=standard_artifacts.ExampleAnomalies)
    schema = types.Channel(type=standard_artifacts.Schema)
    given = {"anomalies": found, "schema": schema, "pattern": "/d", "spans": "[]"}
    gate = AnomalyGate(**given, on_anomaly="warn")
    assert gate.outputs == {}
    schema_gen = ImportSchemaGen(schema_file="/s.pbtxt", fingerprint="1")
    schema_gen.add_upstream_node(gate)
    examples = types.Channel(type=standard_artifacts.Examples)
    ids = [c.id for c in (gate, schema_gen, StatisticsGen(examples=examples))]
    assert ids == ["AnomalyGate", "ImportSchemaGen", "StatisticsGen"]


def test_curated_schema_is_imported(import_schema):
    from tfx.utils import io_utils

    artifact = import_schema(SCHEMA)
    schema = io_utils.SchemaReader().read(f"{artifact.uri}/schema.pbtxt")
    assert [feature.name for feature in schema.feature] == ["carrier", "distance"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('feature {\n  name: "a"\n  typ: INT\n}', r"curated\.pbtxt:3:3: not a schema:"),
        ('feature {\n  name: "a"', r"curated\.pbtxt:2:\d+: not a schema:"),
        ('feature { name: "a" } feature { name: "a" }', "names twice: a"),
    ],
)
def test_schema_that_does_not_parse_names_the_line(import_schema, text, message):
    with pytest.raises(UserError, match=message):
        import_schema(text)


def test_schema_file_that_is_missing():
    from strategos.components.schema_file import read_schema

    with pytest.raises(UserError, match=r"schema.file: .*/none\.pbtxt cannot be read"):
        read_schema("/none.pbtxt")

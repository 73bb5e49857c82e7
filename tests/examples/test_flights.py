"""The flights' data preparation, schema and features."""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf import text_format
from pyarrow import csv
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos import GateStoppedError
from strategos.components.data_files.sources import open_source
from strategos.components.data_files.splitting import Splitter
from strategos.components.data_files.values.features import convert
from strategos.components.data_files.values.kinds import Kind
from strategos.components.user_code import modules

ROOT = Path(__file__).parents[2]
FOLDER = str(ROOT / "examples" / "flights")
KEYS = ["tail_number", "month", "day"]
AFTER_DEPARTURE = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}


@pytest.fixture
def data():
    return modules.load(FOLDER, "data")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flights")
    modules.load(FOLDER, "data").prepare(folder)
    return folder


@pytest.fixture(scope="module")
def year(prepared):
    """All rows of all spans."""
    files = sorted(prepared.glob("data/span-*/flights.csv"))
    return pa.concat_tables([csv.read_csv(path) for path in files])


@pytest.fixture(scope="module")
def schema():
    text = (ROOT / "schemas" / "flights.pbtxt").read_text()
    return text_format.Parse(text, schema_pb2.Schema())


def test_every_flight_that_arrived_is_a_row_of_its_month(data, prepared, year):
    source = data.read_flights()
    arrived = source.num_rows - source["arr_delay"].null_count
    assert source.num_rows == 336_776
    assert year.num_rows == arrived == 327_346
    spans = [path.name for path in sorted(prepared.glob("data/*"))]
    assert spans == [f"span-{month:02d}" for month in range(1, 13)]
    june = csv.read_csv(prepared / "data" / "span-06" / "flights.csv")
    assert pc.unique(june["month"]).to_pylist() == [6]


def test_nothing_that_only_the_flight_tells_is_a_column(year):
    assert not AFTER_DEPARTURE & set(year.column_names)


def test_late_is_more_than_fifteen_minutes_behind_schedule(data, year):
    delays = data.read_flights()["arr_delay"].drop_null()
    assert pc.sum(year["late"]).as_py() == pc.sum(pc.greater(delays, 15)).as_py()


def test_first_flight_of_the_year(year):
    row = year.slice(0, 1).to_pylist()[0]
    facts = ("month", "day", "weekday", "hour", "minute", "arrival", "carrier", "dest")
    assert [row[name] for name in facts] == [1, 1, 2, 5, 15, 8 * 60 + 19, "UA", "IAH"]


def test_weather_is_that_of_the_hour_before_departure(data):
    def hour(of_day: int) -> datetime.datetime:
        return datetime.datetime(2013, 1, 1, of_day, tzinfo=datetime.timezone.utc)

    others = dict.fromkeys(data.COLUMNS[:11], 0) | {"late": 0, "origin": "JFK"}
    flights = pa.Table.from_pylist(
        [
            {**others, "hour": 10, "time_hour": hour(10)},
            {**others, "hour": 11, "time_hour": hour(11)},
            {**others, "hour": 11, "time_hour": hour(11), "origin": "LGA"},
        ]
    )
    numbers = dict.fromkeys(data.COLUMNS[11:20], 1.0)
    weather = pa.Table.from_pylist(
        [
            {**numbers, "origin": "JFK", "time_hour": hour(9), "temp": 9.0},
            {**numbers, "origin": "JFK", "time_hour": hour(10), "temp": 10.0},
            {**numbers, "origin": "JFK", "time_hour": hour(11), "temp": 11.0},
        ]
    )
    joined = data.join_weather(flights, weather)
    assert joined.column_names == data.COLUMNS
    assert joined["temp"].to_pylist() == [9.0, 10.0, None]


def test_preparing_again_replaces_what_was_there(data, tmp_path, monkeypatch):
    few = data.read_flights().slice(0, 100)
    monkeypatch.setattr(data, "read_flights", lambda: few)
    stale = tmp_path / "data" / "span-99"
    stale.mkdir(parents=True)
    data.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["span-01"]


def test_failing_halfway_leaves_nothing_behind(data, tmp_path, monkeypatch):
    few = data.read_flights().slice(0, 100)
    monkeypatch.setattr(data, "read_flights", lambda: few)
    monkeypatch.setattr(data.csv, "write_csv", _disk_is_full)
    with pytest.raises(OSError, match="No space"):
        data.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_schema_declares_the_columns_of_the_files(data, schema):
    assert {feature.name for feature in schema.feature} == set(data.COLUMNS)


def test_preprocessing_knows_the_domains_of_the_schema(schema):
    features = modules.load(FOLDER, "features")
    domains = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    assert domains == {"carrier": features.CARRIERS, "origin": features.ORIGINS}


def test_a_year_fits_the_schema_and_mistakes_do_not(year, schema):
    import tensorflow_data_validation as tfdv
    from tensorflow_data_validation.statistics import stats_impl

    def anomalies(rows: pa.Table) -> dict[str, str]:
        batch = convert(rows.combine_chunks().to_batches()[0], kinds)
        statistics = stats_impl.generate_statistics_in_memory(batch)
        found = tfdv.validate_statistics(statistics, schema).anomaly_info
        return {name: anomaly.short_description for name, anomaly in found.items()}

    declared = {f.name: schema_pb2.FeatureType.Name(f.type) for f in schema.feature}
    kinds = {name: Kind[declared[name]] for name in year.column_names}
    rows = year.take(list(range(0, year.num_rows, 20)))
    assert anomalies(rows) == {}
    wrong = {"carrier": "ZZ", "hour": 31, "temp": 500.0, "dest": None}
    mistaken = rows.slice(0, 1).to_pylist()[0] | wrong
    mistaken = pa.Table.from_pylist([mistaken], schema=rows.schema)
    assert anomalies(pa.concat_tables([rows.slice(1, 1000), mistaken])) == {
        "carrier": "Unexpected string values",
        "hour": "Out-of-range values",
        "temp": "Out-of-range values",
        "dest": "Multiple errors",
    }


def _disk_is_full(*_):
    raise OSError(28, "No space left on device")


def test_split_of_the_year_is_that_of_every_version_before(prepared, schema):
    split = json.dumps({"by": "hash", "keys": KEYS, "train": 8, "eval": 2})
    splitter = Splitter.from_json(split, spans=[1])
    types = {f.name: schema_pb2.FeatureType.Name(f.type) for f in schema.feature}
    kinds = {name: Kind[types[name]] for name in KEYS}
    digest, rows = hashlib.sha256(), 0
    for path in sorted(prepared.glob("data/span-*/flights.csv")):
        for batch in open_source(str(path)).batches():
            train = splitter.masks(batch, 1, path.name, 0, kinds)["train"]
            rows += train.sum()
            digest.update(train.tobytes())
    assert rows == 262_263
    assert digest.hexdigest().startswith("eb78e7acf4041da3e2034922")


def test_gate_that_has_nothing_to_judge_stops_the_run(tmp_path):
    small = {"feature": "origin", "value": "JFK", "examples": 9, "metrics": {"auc": 1}}
    (tmp_path / "summary.json").write_text(json.dumps({"slices": [small]}))
    gate = modules.load(FOLDER, "fairness").FairnessGate.EXECUTOR_SPEC.executor_class
    judge = gate._FUNCTION
    words = {"evaluation": SimpleNamespace(uri=tmp_path), "feature": "origin"}
    judge(**words, metric="auc", largest_gap=0.1, min_examples=9)
    with pytest.raises(GateStoppedError, match="`origin` has `auc` on 10 rows"):
        judge(**words, metric="auc", largest_gap=0.1, min_examples=10)

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2

from strategos.pipeline.history import store


@dataclasses.dataclass(frozen=True)
class PastRuns:
    """A root with a real history; ids of its runs by the outcome of each."""

    root: Path
    ids: dict[str, str]

    @property
    def connection(self):
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = str(self.root / "metadata.sqlite")
        return config

    def open(self):
        return store.Store(self.connection)


@pytest.fixture(scope="session")
def past_runs(tmp_path_factory, warm_tfx) -> PastRuns:
    """The history that `past_runs.py` makes: pushed, cached, gated, failed, killed."""
    root = tmp_path_factory.mktemp("root")
    program = Path(__file__).with_name("past_runs.py").read_text()
    return PastRuns(root, warm_tfx.script(program, str(root)).answer())


_PIPELINE = """\
name: flights
label: late
data:
  examples: data/span-{SPAN}/*.csv
  split: {by: hash, keys: [tail]}
transform: {module: preprocessing}
trainer:
  module: model
  batch_size: 512
  hyperparameters: {units: [64, 32], learning_rate: 1e-3}
evaluator:
  metrics: [auc, log_loss]
  slices: [carrier]
  bounds:
    auc: {at_least: 0.7, slices: {carrier: {at_least: 0.6}}}
pusher: {to: serving}
"""
_SCHEMA = 'feature {{ name: "{name}" type: {type} }}\n'


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a text file under the test's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def workload(write: Callable[[str, str], Path]) -> Path:
    """Writes a complete, valid workload (no TensorFlow needed); returns its YAML."""
    write("data/span-1/a.csv", "late,tail,carrier\n1,N1,UA\n0,N2,AA\n")
    write("data/span-2/a.csv", "late,tail,carrier\n1,N1,UA\n0,N2,AA\n")
    write("preprocessing.py", "def preprocessing_fn(inputs):\n    return inputs\n")
    write("model.py", "def build_model(context):\n    ...\n")
    columns = {"late": "INT", "tail": "BYTES", "carrier": "BYTES"}
    schema = "".join(_SCHEMA.format(name=n, type=t) for n, t in columns.items())
    write("schema.pbtxt", schema)
    return write("pipeline.yaml", _PIPELINE)

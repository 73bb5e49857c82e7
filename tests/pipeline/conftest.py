from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.config.operating import Pusher
from strategos.pipeline.history.store import Store


@dataclasses.dataclass(frozen=True)
class PastRuns:
    """A root with a real history; ids of its runs by the outcome of each."""

    root: Path
    ids: dict[str, str]

    @property
    def connection(self):
        config = mlmd.ConnectionConfig()
        config.sqlite.filename_uri = str(self.root / "metadata.sqlite")
        return config

    def open(self):
        return Store(self.connection)


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


@pytest.fixture
def house(tmp_path):
    """A serving folder with versions 10, 20, 30, and their record of three runs."""
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = str(tmp_path / "metadata.sqlite")
    config.sqlite.connection_mode = 3
    store = ml_metadata.MetadataStore(config)
    types = {
        name: store.put_artifact_type(mlmd.ArtifactType(name=name))
        for name in ("Examples", "Model", "ModelEvaluation", "PushedModel")
    }
    runs = store.put_context_type(mlmd.ContextType(name="pipeline_run"))
    pipelines = store.put_context_type(mlmd.ContextType(name="pipeline"))
    kind = store.put_execution_type(mlmd.ExecutionType(name="node"))
    pipeline = mlmd.Context(type_id=pipelines, name="flights")
    (pipeline.id,) = store.put_contexts([pipeline])

    def execute(contexts, read, *made, **properties):
        execution = mlmd.Execution(type_id=kind)
        for key, value in properties.items():
            execution.custom_properties[key].string_value = value
        pairs = [(each, mlmd.Event(type=mlmd.Event.INPUT)) for each in read]
        pairs += [(each, mlmd.Event(type=mlmd.Event.OUTPUT)) for each in made]
        _, ids, _ = store.put_execution(execution, pairs, contexts)
        for artifact, id in zip([*read, *made], ids, strict=True):
            artifact.id = id

    def add(number, place="serving"):
        """A version with its record; one that is not in `serving` is a canary."""
        folder = tmp_path / place / str(number)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_text(f"model of {number}")
        run = mlmd.Context(type_id=runs, name=f"run-{number}")
        (run.id,) = store.put_contexts([run])
        examples, model, evaluation, pushed = (
            mlmd.Artifact(type_id=id, uri=f"{folder}-{name}")
            for name, id in types.items()
        )
        evaluation.custom_properties["auc"].double_value = number / 100
        facts = pushed.custom_properties
        facts["pushed"].int_value = 1
        facts["pushed_destination"].string_value = str(folder)
        facts["pushed_version"].string_value = str(number)
        facts["candidate"].string_value = f"key-{number}"
        if place != "serving":
            facts["slot"].string_value = "canary"
            run.custom_properties["outcome"].string_value = "blessed"
            store.put_contexts([run])
        both = [run, pipeline]
        execute(both, [], examples, spans=f"[[1, null], [{number}, null]]")
        execute(both, [examples], model)
        execute(both, [examples, model], evaluation)
        execute(both, [model], pushed)
        about = {"run_id": run.name, "fingerprint": f"key-{number}", "model": model.id}
        about["spans"] = [[1, None], [number, None]]
        if place != "serving":
            (folder / "assets.extra").mkdir()
            (folder / "assets.extra" / "manifest.json").write_text(json.dumps(about))

    for number in (10, 20, 30):
        add(number)
    return SimpleNamespace(
        store=Store(config),
        add=add,
        to=str(tmp_path / "serving"),
        config=SimpleNamespace(
            name="flights",
            pusher=Pusher(
                to=str(tmp_path / "serving"), canary=str(tmp_path / "canary"), keep=9
            ),
        ),
    )

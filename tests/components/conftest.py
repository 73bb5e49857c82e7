"""One small workload through Transform, shared by the tests that need its outputs."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from strategos.components.trainer.spec import WorkerSpec

# `tf.keras` is tf-keras, also where another test imports TensorFlow first.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclasses.dataclass(frozen=True)
class Workload:
    """Files of a workload: the user's, the raw examples, Transform's output."""

    root: Path

    @property
    def folder(self) -> str:
        return str(self.root / "user")

    @property
    def schema(self) -> str:
        return str(self.root / "schema" / "schema.pbtxt")

    @property
    def graph(self) -> str:
        return str(self.root / "graph")

    def raw(self, split: str) -> list[str]:
        return sorted(map(str, self.root.glob(f"raw/Split-{split}/*")))

    def transformed(self, split: str) -> tuple[str, ...]:
        return tuple(sorted(map(str, self.root.glob(f"transformed/Split-{split}/*"))))

    def user_module(self, module: str) -> str:
        return json.dumps({"folder": self.folder, "module": module, "fingerprint": ""})

    def write_module(self, name: str, source: str) -> None:
        (self.root / "user" / f"{name}.py").write_text(textwrap.dedent(source))


DIGITS_SCHEMA = """
feature { name: "image" type: BYTES presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
feature { name: "label" type: INT presence { min_fraction: 1 }
          shape { dim { size: 1 } } }
"""
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def _make_digits(root: Path) -> Workload:
    """examples/digits: 1,437 rows to train on, 360 to evaluate on."""
    import io

    import numpy as np
    import tensorflow as tf
    from PIL import Image
    from sklearn.datasets import load_digits

    workload = Workload(root)
    (root / "schema").mkdir()
    Path(workload.schema).write_text(DIGITS_SCHEMA)
    shutil.copytree(DIGITS, root / "user", ignore=shutil.ignore_patterns("[!a-z]*"))
    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    writers = {}
    for split in ("train", "eval"):
        folder = root / "raw" / f"Split-{split}"
        folder.mkdir(parents=True)
        file = str(folder / "data_tfrecord-00000-of-00001.gz")
        writers[split] = tf.io.TFRecordWriter(file, "GZIP")
    for number, (pixels, label) in enumerate(zip(images, digits.target, strict=True)):
        png, example = io.BytesIO(), tf.train.Example()
        Image.fromarray(pixels).save(png, "PNG")
        example.features.feature["image"].bytes_list.value.append(png.getvalue())
        example.features.feature["label"].int64_list.value.append(int(label))
        split = "eval" if number % 5 == 0 else "train"
        writers[split].write(example.SerializeToString())
    for writer in writers.values():
        writer.close()
    return workload


def _write_flights(workload: Workload, train: int, evaluation: int) -> None:
    generator = random.Random(1)
    for split, rows in (("train", train), ("eval", evaluation)):
        _write_raw(workload.root / "raw" / f"Split-{split}", rows, generator)
    return workload


def _write_raw(folder: Path, rows: int, generator: random.Random) -> None:
    import tensorflow as tf

    folder.mkdir(parents=True)
    file = str(folder / "data_tfrecord-00000-of-00001.gz")
    with tf.io.TFRecordWriter(file, "GZIP") as writer:
        for _ in range(rows):
            writer.write(_raw_example(generator).SerializeToString())


def _raw_example(generator: random.Random):
    """A flight that is likelier late the later and the farther it goes."""
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    carrier = generator.choice(["AA", "UA", "DL", "OO"])
    distance, hour = generator.uniform(100, 3000), generator.randrange(24)
    chance = distance / 3000 + hour / 24 + (carrier == "OO") + generator.gauss(0, 0.3)
    feature["carrier"].bytes_list.value.append(carrier.encode())
    feature["distance"].float_list.value.append(distance)
    if generator.random() < 0.9:
        feature["temp"].float_list.value.append(generator.gauss(10, 5))
    feature["hour"].int64_list.value.append(hour)
    feature["delay"].float_list.value.append(chance)
    feature["late"].int64_list.value.append(int(chance > 1.3))
    return example


def _transform(
    workload: Workload,
    module: str = "preprocessing",
    label: str = "late",
    custom_config: Mapping[str, Any] | None = None,
    rows: Mapping[str, int] | None = None,
    missing: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Runs Transform's executor on the workload; the recorded numbers of rows.

    `rows` are those that ExampleGen would have recorded.
    """
    from tfx.types import standard_artifacts
    from tfx.utils import json_utils

    from strategos.components.records import counts
    from strategos.components.transform.executor import Executor

    def artifact(kind, name):
        made = kind()
        made.uri = str(workload.root / name)
        return made

    raw = artifact(standard_artifacts.Examples, "raw")
    raw.split_names = '["train", "eval"]'
    for split, number in (rows or {}).items():
        counts.record(raw, split, number)
    schema = artifact(standard_artifacts.Schema, "schema")
    graph = artifact(standard_artifacts.TransformGraph, "graph")
    transformed = artifact(standard_artifacts.Examples, "transformed")
    config = {
        "user_module": workload.user_module(module),
        "label": label,
        "custom_config": custom_config or {},
        "missing": missing or {},
    }
    Executor().Do(
        {"examples": [raw], "schema": [schema]},
        {"transform_graph": [graph], "transformed_examples": [transformed]},
        {"custom_config": json_utils.dumps(config)},
    )
    return {x: counts.recorded([transformed], x) for x in ("train", "eval")}


@pytest.fixture(scope="session")
def workload(workload_in, copy_once) -> Workload:
    """1,000 training and 300 evaluation rows, transformed; read-only for tests."""

    def make(folder: Path) -> None:
        made = workload_in(folder, "late")
        _write_flights(made, 1000, 300)
        _transform(made)

    return copy_once("late", make)


@pytest.fixture(scope="session")
def digits(copy_once) -> Workload:
    """examples/digits with all its rows, transformed; modules may be added to it."""
    return copy_once(
        "digits", lambda folder: _transform(_make_digits(folder), label="label")
    )


@pytest.fixture(scope="session")
def copy_once(made_once, tmp_path_factory) -> Callable[..., Workload]:
    """Copies a workload made once for all of pytest's workers: `(name, make)`."""

    def copy(name: str, make: Callable[[Path], None]) -> Workload:
        folder = tmp_path_factory.mktemp(name)
        shutil.copytree(made_once(name, make), folder, dirs_exist_ok=True)
        return Workload(folder)

    return copy


@pytest.fixture(scope="session")
def spec_of(tmp_path_factory) -> Callable[..., Any]:
    """Makes a `WorkerSpec`: `spec_of(workload, label=…, …)`."""

    def make(workload: Workload, **settings: Any) -> Any:
        from strategos.components.trainer.spec import WorkerSpec

        folder = tmp_path_factory.mktemp("trained")
        (folder / "model").mkdir()
        facts = {
            "folder": workload.folder,
            "module": "model",
            "train_files": workload.transformed("train"),
            "eval_files": workload.transformed("eval"),
            "transform_graph": workload.graph,
            "schema_file": workload.schema,
            "model_dir": str(folder / "model"),
            "log_dir": str(folder / "log"),
            "checkpoint_dir": str(folder / "checkpoints"),
            "seed": 7,
        }
        return WorkerSpec(**{**facts, **settings})

    return make


@pytest.fixture(scope="session")
def make_spec(workload, tmp_path_factory) -> Callable[..., WorkerSpec]:
    """Makes a `WorkerSpec` of the workload: `make_spec(epochs=…)`."""

    def make(**changes) -> WorkerSpec:
        folder = tmp_path_factory.mktemp("model")
        spec = WorkerSpec(
            folder=workload.folder,
            module="model",
            label="late",
            train_files=workload.transformed("train"),
            eval_files=workload.transformed("eval"),
            transform_graph=workload.graph,
            schema_file=workload.schema,
            model_dir=str(folder),
            log_dir=str(folder / "log"),
            checkpoint_dir=str(folder / "checkpoints"),
            batch_size=96,
            epochs=3,
            seed=7,
            hyperparameters={"units": [16]},
            distribution={"strategy": "auto"},
        )
        return dataclasses.replace(spec, **changes)

    return make


@pytest.fixture(scope="session")
def write_flights() -> Callable[..., None]:
    """Writes raw rows of a workload: `write_flights(workload, train, evaluation)`."""
    return _write_flights


@pytest.fixture
def new_workload(workload_in, tmp_path) -> Callable[..., Workload]:
    """Makes an untransformed workload of a few rows: `new_workload(train=…)`."""

    def make(train: int = 50, evaluation: int = 20) -> Workload:
        made = workload_in(tmp_path / "workload", "late")
        _write_flights(made, train, evaluation)
        return made

    return make


@pytest.fixture(scope="session")
def workload_in(copy_workload) -> Callable[..., Workload]:
    """Makes a workload without rows: `workload_in(folder, name)`.

    Its files are those of `tests/workloads/NAME`; without a name, the test writes them.
    """

    def make(folder: Path, name: str = "") -> Workload:
        made = Workload(folder)
        if name:
            copy_workload(name, made.folder)
            Path(made.schema).parent.mkdir()
            Path(made.folder, "schema.pbtxt").rename(made.schema)
        return made

    return make


@pytest.fixture(scope="session")
def transform() -> Callable[..., None]:
    """Runs Transform's executor: `transform(workload, module)`."""
    return _transform


@pytest.fixture(scope="session")
def saved_model() -> Callable[[Path, bytes], Path]:
    """Writes files named as a SavedModel's: `saved_model(folder, content)`."""

    def write(folder: Path, content: bytes) -> Path:
        (folder / "variables").mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(content)
        (folder / "variables" / "variables.index").write_bytes(content)
        return folder

    return write


@pytest.fixture
def model(saved_model, tmp_path) -> Path:
    """Such a model, to be pushed."""
    return saved_model(tmp_path / "model" / "Format-Serving", b"new")


@pytest.fixture
def serving(tmp_path) -> Path:
    """The folder that models are pushed to; it does not exist yet."""
    return tmp_path / "serving"


@pytest.fixture
def dataflow_jobs(monkeypatch):
    """Dry runs of pipelines on Dataflow; each pipeline then runs in process."""
    import apache_beam as beam
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    from strategos.components.shards import beam_runners
    from strategos.components.shards.engine import Engine

    found = []
    engine = Engine(
        "dataflow",
        workers=3,
        project="flights-17",
        region="europe-west4",
        temp_location="gs://a-bucket/temp",
        image="registry.example.com/flights:1",
    )
    (variable,) = engine.to_environment().items()
    monkeypatch.setenv(*variable)

    class DryRun(beam.Pipeline):
        def __init__(self, name, master, limits, argv):
            # Beam's validator checks the options.
            self._on_dataflow = beam.Pipeline(argv=[*argv, "--dry_run=True"]).options
            super().__init__(argv=list(beam_runners._IN_PROCESS))

        def __exit__(self, *raised):
            super().__exit__(*raised)
            found.append(DataflowRunner().run_pipeline(self, self._on_dataflow).job)

    monkeypatch.setattr(beam_runners, "BeamJob", DryRun)
    return found

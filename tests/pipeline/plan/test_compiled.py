"""Compiled pipelines on disk: which changes they survive, and what is recorded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tfx.proto.orchestration import pipeline_pb2

from strategos.components import events
from strategos.pipeline.config import loading
from strategos.pipeline.plan import caching, graph, planning, tfx_adapter
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.plan.reuse import compiled, user_code

MODELS = (
    "def build_model(context):\n    ...\n",
    "import helper\ndef build_model(context):\n    return helper\n",
    "def run_fn(context):\n    ...\n",
    "def run_fn(fn_args):\n    ...\n",
    'import os\nUNITS = os.environ["UNITS"]\ndef build_model(context):\n    ...\n',
)
SETTINGS = (
    "trainer.epochs=3",
    "trainer.module=other",
    "transform.module=other",
    "transform.custom_config={bins: 3}",
    "label=tail",
    "schema.file=schema.pbtxt",
    "schema.on_anomaly=warn",
    "data.split.eval=5",
    "data.missing={carrier: none}",
    "data.null_values=[NA]",
    "trainer.callbacks.early_stopping={monitor: val_auc}",
    "evaluator=null",
    "evaluator.slices=[carrier]",
    "evaluator.bounds.auc.at_least=0.9",
    "pusher=null",
    "pusher.keep=9",
    "pusher.canary=trial",
    "gates={rows: {at_least: 0.5}}",
    "run.root=elsewhere",
    "name=another",
    "nodes={Sum: {component: 'own:Beamed'}}",
)
CHANGES = {
    "preprocessing.py": st.integers(0, 2).map(
        "A = {}\ndef preprocessing_fn(x): ...".format
    ),
    "model.py": st.sampled_from(MODELS),
    "other.py": st.sampled_from(MODELS),
    "helper.py": st.integers(0, 2).map("A = {}\n".format),
    "data/span-1/a.csv": st.sampled_from(["late,tail,carrier\n1,N1,UA\n0,N2,DL\n"]),
    "own.py": st.sampled_from(["Beamed", "Beamed, Limit"]).map(
        "from beamed import Beamed\n# {}\n".format
    ),
}


def _is_possible(sets):
    """Whether no setting is of a section that another one leaves out."""
    gone = [x.removesuffix("=null") for x in sets if x.endswith("=null")]
    return not any(x.startswith(f"{section}.") for section in gone for x in sets)


class Compiler:
    """Compiles in this process, and counts how often."""

    def __init__(self):
        self.count = 0

    def compile(self, config, fingerprints, defaults, target):
        pipeline = graph.build(config, fingerprints, defaults, movable=True)
        ir = tfx_adapter.compile_ir(pipeline)
        target.write_bytes(ir.SerializeToString(deterministic=True))
        self.count += 1


@pytest.fixture
def copied(workload, copy_workload):
    """The workload, with a component of its own."""
    copy_workload("own", workload.parent)
    (workload.parent / "own.py").rename(workload.parent / "beamed.py")
    for name in ("own.py", "other.py", "helper.py"):
        (workload.parent / name).write_text("from beamed import Beamed\n")
    return workload


def values_of(config):
    return planning.parameters(config, config.data.listing())


def finished(ir, config):
    """The bytes of a pipeline for a run; TFX packs the executors in any order."""
    compiled._narrow(ir)
    tfx_adapter.substitute(ir, values_of(config))
    executors = pipeline_pb2.IntermediateDeploymentConfig()
    ir.deployment_config.Unpack(executors)
    ir.deployment_config.Clear()
    return [each.SerializeToString(deterministic=True) for each in (ir, executors)]


def test_a_kept_pipeline_is_to_the_byte_what_a_compilation_would_make(
    copied, monkeypatch
):
    """Whatever of code, schema, settings and variables has changed in between."""
    client, folder = Compiler(), copied.parent

    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        files=st.fixed_dictionaries({}, optional=CHANGES),
        schema=st.booleans(),
        sets=st.lists(st.sampled_from(SETTINGS), max_size=2, unique=True).filter(
            _is_possible
        ),
        units=st.sampled_from(["8", "16"]),
    )
    def check(files, schema, sets, units):
        monkeypatch.setenv("UNITS", units)
        for name, text in files.items():
            (folder / name).write_text(text)
        if schema:
            file = folder / "schema.pbtxt"
            file.write_text(f"{file.read_text()}\n# changed\n")
        config = loading.load(copied, (), sets).config
        ir, fingerprints, _ = compiled.read(config, values_of(config), client)
        code = user_code.UserCode.of(config, None, fingerprints)
        code.apply(ir)
        fresh = tfx_adapter.compile_ir(
            graph.build(config, fingerprints, values_of(config), movable=True)
        )
        assert finished(ir, config) == finished(fresh, config)

    check()
    assert client.count > 0


@pytest.mark.parametrize("name", ["preprocessing.py", "model.py"])
def test_changed_code_compiles_nothing_unless_it_is_for_another_trainer(
    copied, name, tmp_path
):
    client, sink = Compiler(), tmp_path / "events"

    def read():
        config = loading.load(copied).config
        return compiled.read(config, values_of(config), client)[2]

    events.open_sink(str(sink))
    path = read()
    with (copied.parent / name).open("a") as module:
        module.write("\nCHANGED = 1\n")
    assert (read(), client.count) == (path, 1)
    (copied.parent / "model.py").write_text("def run_fn(fn_args):\n    ...\n")
    assert read() != path
    events.open_sink(None)
    notes = [json.loads(line)["message"] for line in sink.read_text().splitlines()]
    assert notes == ["compiling the pipeline (settings or own nodes are new)"] * 2


def test_other_bounds_slices_and_metrics_compile_nothing(copied):
    client = Compiler()

    def read(*sets):
        config = loading.load(copied, (), sets).config
        return compiled.read(config, values_of(config), client)[2]

    path = read()
    for change in ("bounds.auc.at_least=0.9", "slices=[carrier]", "metrics=[auc]"):
        assert read(f"evaluator.{change}") == path
    assert client.count == 1
    assert read("evaluator=null") != path


def test_executors_start_early_unless_the_last_finished_run_was_the_same(copied):
    client = Compiler()

    def likely(*sets, **options):
        config = loading.load(copied, (), sets).config
        asked = planning.RunOptions(**options)
        return planning.likely_executed(config, config.data.listing(), asked)

    def finish(*sets, **options):
        config, asked = loading.load(copied, (), sets).config, options
        values = planning._values(
            config, config.data.listing(), planning.RunOptions(**asked)
        )
        _, fingerprints, path = compiled.read(config, values, client)
        request = planning._request(fingerprints, values, planning.RunOptions(**asked))
        compiled.keep_done(
            Plan("1", None, None, Path(), Path(), compiled=path, request=request)
        )

    kinds = planning.Executed
    any_node, none, training = kinds.ANY, kinds.NONE, kinds.FROM_TRAINER
    assert likely() == any_node
    finish()
    assert likely() == none
    assert likely("run.cache=false") == any_node
    for more in ({"to_node": "Trainer"}, {"without_baseline": True}):
        assert likely(**more) == any_node
    for name, value in (("epochs", 9), ("hyperparameters.units", [8])):
        assert likely(f"trainer.{name}={value}") == training
    assert likely("data.split.eval=5") == any_node  # not compiled yet
    assert likely() == none
    (copied.parent / "data/span-3").mkdir()
    span = copied.parent / "data/span-1/a.csv"
    (copied.parent / "data/span-3/a.csv").write_bytes(span.read_bytes())
    assert likely() == any_node
    finish()
    assert likely() == none
    with (copied.parent / "model.py").open("a") as model:
        model.write("\nCHANGED = 1\n")
    assert likely() == training
    assert likely("run.runner=beam") == none  # its processes are of its own
    with (copied.parent / "preprocessing.py").open("a") as module:
        module.write("\nCHANGED = 1\n")
    assert likely() == any_node


def test_every_field_of_a_fingerprint_but_two_is_in_the_key_of_the_compiled(copied):
    config = loading.load(copied, (), ["nodes={Sum: {component: 'own:Beamed'}}"]).config
    base = caching.Fingerprints.of(config)
    key = caching.ir_key(config, base)
    for each in dataclasses.fields(base):
        value = {"Sum": "changed"} if each.name == "nodes" else "changed"
        other = caching.ir_key(config, dataclasses.replace(base, **{each.name: value}))
        assert (other == key) == (each.name in ("preprocessing", "model")), each.name

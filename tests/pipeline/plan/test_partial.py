"""Partial runs: keys of data and code that they do not read."""

from __future__ import annotations

import json

import pytest

from strategos.pipeline.config.loading import load
from strategos.pipeline.config.nodes.order import names as nodes_of
from strategos.pipeline.plan import graph, partial, planning
from strategos.pipeline.root import RUN_CONTEXT, metadata
from strategos.pipeline.run.journal import Journal


class InProcess:
    """Compiles in this process."""

    def compile(self, config, fingerprints, defaults, target):
        from tfx.dsl.compiler.compiler import Compiler

        pipeline = graph.build(config, fingerprints, defaults, movable=True)
        target.write_bytes(Compiler().compile(pipeline).SerializeToString())


@pytest.fixture
def run(workload):
    """Plans and records a run; returns its keys: `run(*sets, from_node=…)`."""

    def run(*sets, **options):
        config = load(workload, sets=sets).config
        number = len(run.plans)
        files = planning.RunFiles(config.run.root, f"run-{number}")
        metadata.initialise(metadata.of(config))
        made = planning.plan(
            config,
            config.data.listing(),
            planning.RunOptions(**options),
            files,
            InProcess(),
        )
        Journal(made).open(pipeline=config.name)
        run.plans.append(made)
        return json.loads(made.facts["keys"])

    run.plans = []
    return run


EDIT = "data.split.eval=5"


def test_a_partial_run_has_the_keys_of_the_run_whose_outputs_it_takes(run):
    first = run()
    edited = run(EDIT, from_node="Trainer")
    assert edited == first  # nothing of the edit was read
    more = run(EDIT, "trainer.epochs=9", from_node="Trainer")
    assert more["Transform"] == first["Transform"]
    assert more["Trainer"] != first["Trainer"]
    whole = run(EDIT, "trainer.epochs=9")
    assert whole["Transform"] != first["Transform"]
    assert whole["Trainer"] not in (first["Trainer"], more["Trainer"])
    assert whole["checkpoint"] not in (first["checkpoint"], more["checkpoint"])


def test_a_judged_model_has_the_key_of_the_run_that_trained_it(run):
    first = run()
    judged = run("trainer.epochs=9", from_node="Evaluator")
    assert judged["Trainer"] == first["Trainer"]


def test_a_partial_run_takes_the_outputs_of_its_own_target(run):
    production = run()
    run(EDIT, "pusher.to=staging")
    assert run(from_node="Trainer")["Transform"] == production["Transform"]
    strategy = run.plans[-1].ir.runtime_spec.snapshot_settings
    assert strategy.base_pipeline_run_strategy.base_run_id == "run-0"


def test_outputs_of_a_run_before_keys_were_recorded_are_like_no_others(run):
    first = run()
    store = metadata.store(run.plans[0].connection, 0)
    context = store.get_context_by_type_and_name(RUN_CONTEXT, "run-0")
    context.custom_properties["keys"].string_value = ""
    store.put_contexts([context])
    assert run(from_node="Trainer")["Trainer"] != first["Trainer"]
    assert run() == first


@pytest.mark.parametrize(
    ("name", "meant"), [("trainer", "Trainer"), ("infra", "InfraValidator"), ("x", "")]
)
def test_an_unknown_node_is_named_with_the_nearest_before_compiling(
    workload, name, meant
):
    config = load(workload).config
    (problem,) = partial.problems(config, {"--from": "Trainer", "--to": name})
    assert str(problem).startswith(
        f"command line: --to: received '{name}'; the pipeline"
    )
    assert problem.remedy == (f"Did you mean `{meant}`?" if meant else "")
    assert problem.expected.split(", ") == nodes_of(config)

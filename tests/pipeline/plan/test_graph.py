from __future__ import annotations

import itertools
import json

import pytest

from strategos.components.runtime_parameters import TABLE
from strategos.pipeline.config.loading import load
from strategos.pipeline.config.nodes.order import names as nodes_of

ALL = [
    *("ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "AnomalyGate"),
    *("Transform", "Trainer", "BaselineModel", "Evaluator", "EvaluationGate"),
    *("InfraValidator", "Pusher"),
]


def nodes(ir):
    return {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}


def test_nodes_stand_in_the_order_in_which_a_reader_thinks_of_them(compiled):
    order = list(nodes(compiled()))
    assert sorted(order) == sorted(ALL)
    assert order[-1] == "Pusher"
    for before, after in itertools.pairwise(ALL):
        assert order.index(before) < order.index(after)


def test_gates_stand_between_what_measures_and_what_follows(compiled):
    found = nodes(compiled())
    assert "AnomalyGate" in found["Transform"].upstream_nodes
    assert found["AnomalyGate"].upstream_nodes == ["ExampleValidator", "SchemaGen"]
    assert "EvaluationGate" in found["InfraValidator"].upstream_nodes
    assert "InfraValidator" in found["Pusher"].upstream_nodes


def test_nodes_that_the_config_leaves_out_are_left_out(compiled):
    found = nodes(compiled("evaluator=null", "schema.file=schema.pbtxt"))
    left_out = {"Evaluator", "EvaluationGate", "BaselineModel", "SchemaGen"}
    assert set(found) == set(ALL) - left_out | {"ImportSchemaGen"}
    assert "Trainer" in found["InfraValidator"].upstream_nodes
    assert set(nodes(compiled("pusher=null"))) == set(ALL) - {
        "InfraValidator",
        "Pusher",
    }


@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("evaluator=null", "schema.file=schema.pbtxt"),
        ("pusher=null", "gates={rows: {at_least: 0.5}}"),
        ("statistics={slices: [carrier]}",),
        ("statistics={transformed: true}",),
    ],
)
def test_the_nodes_that_flags_may_name_are_those_of_the_graph(compiled, workload, sets):
    named = nodes_of(load(workload, sets=sets).config)
    assert sorted(named) == sorted(nodes(compiled(*sets)))


def test_what_may_change_from_run_to_run_is_a_runtime_parameter(compiled):
    from tfx.orchestration.portable import runtime_parameter_utils

    ir = compiled()
    text_or_one = {str: "x", int: 1}
    values = {each.name: text_or_one[each.passed_type] for each in TABLE}
    values["epochs"] = 3
    runtime_parameter_utils.substitute_runtime_parameter(ir, values)
    trainer = nodes(ir)["Trainer"].parameters.parameters
    assert trainer["epochs"].field_value.int_value == 3
    assert trainer["hyperparameters"].field_value.string_value == "x"
    example_gen = nodes(ir)["ExampleGen"].parameters.parameters
    assert example_gen["spans"].field_value.string_value == "x"


@pytest.mark.parametrize(
    "setting",
    [
        "trainer.checkpoint.every=1s",
        "trainer.distribution.launcher=external",
        "trainer.distribution.stall_timeout=1m",
        "trainer.distribution.max_restarts=0",
        "trainer.distribution.bandwidth=1Gbit",
    ],
)
def test_how_training_is_run_is_no_part_of_the_pipeline(compiled, setting):
    assert compiled(setting) == compiled()


def test_a_module_for_tfx_may_give_the_label_another_name(compiled, workload):
    def config():
        parameters = nodes(compiled())["Transform"].parameters.parameters
        return json.loads(parameters["custom_config"].field_value.string_value)

    assert config()["label"]
    module = workload.parent / "model.py"
    module.write_text("def run_fn(fn_args):\n    pass\n")
    assert config()["label"] == ""


def test_slices_of_statistics_change_their_own_node_alone(compiled):
    """Neither schema nor model is made again for another slice."""
    from strategos.pipeline.plan import caching

    def keys(*sets):
        return caching.node_keys(compiled(*sets))

    plain = keys()
    sliced = keys("statistics={slices: [carrier], transformed: true}")
    other = keys("statistics={slices: [origin], transformed: true}")
    own, after = sliced.pop("DetailedStatistics"), sliced.pop("TransformedStatistics")
    assert sliced == plain
    assert other.pop("DetailedStatistics") != own
    assert other == {**plain, "TransformedStatistics": after}


def test_statistics_of_the_transformed_rows_have_weights_and_no_slices(compiled):
    sets = "statistics={slices: [carrier], weighted: true, transformed: true}"
    found = nodes(compiled("weight=distance", sets))

    def request(name):
        parameters = found[name].parameters.parameters
        return json.loads(parameters["request"].field_value.string_value)

    whole = {"slices": ["carrier"], "weight": "distance", "sample": 1.0}
    assert request("DetailedStatistics") == whole
    assert request("TransformedStatistics") == {**whole, "slices": []}
    assert found["TransformedStatistics"].upstream_nodes == ["Transform"]

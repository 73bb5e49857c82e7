"""The section `nodes`: names, order and cycles are checked without TFX."""

from __future__ import annotations

import pytest

from strategos.components import node_ids
from strategos.pipeline.config.loading import ConfigError, load
from strategos.pipeline.config.nodes import order

WRONG = """\
nodes:
  Trainer:
    component: own:Count
  Resolve: {component: own:Count}
  Count:
    component: own.py
    inputs:
      examples: ExampleGen
  Early:
    component: own:Count
    inputs:
      examples: ExampleGen.exampels
      model: Trianer.model
      spans: SpanValidator.anomalies
    after: [Early]
    before: [Trainer, Pusherr]
"""
EXPECTED = """\
2 nodes.Trainer: a node has this name already
4 nodes.Resolve: a node has this name already
9 nodes.Early: the nodes wait for each other: Early → Early
12 nodes.Early.inputs.examples: ExampleGen has no output `exampels`
13 nodes.Early.inputs.model: the pipeline has no node `Trianer`
14 nodes.Early.inputs.spans: the pipeline has no node `SpanValidator`
16 nodes.Early.before.1: the pipeline has no node `Pusherr`
"""


def own(workload, text):
    """The workload with a section `nodes`: its YAML."""
    path = workload.with_name("own.yaml")
    path.write_text(workload.read_text() + text)
    return path


def problems(path):
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value.problems


def test_every_wrong_name_is_refused_at_once_by_its_line(workload):
    base = len(workload.read_text().splitlines())
    text = WRONG.replace("own.py", "own:Count").replace("Gen\n", "Gen.examples\n")
    path = own(workload, text)
    found = problems(path)
    told = [f"{each.place.line - base} {each.key}: {each.message}" for each in found]
    assert told == EXPECTED.splitlines()
    assert {each.place.source for each in found} == {str(path)}
    (meant,) = (each for each in found if each.key.endswith("model"))
    assert meant.remedy == "Did you mean `Trainer`?"


def test_forms_of_component_and_inputs_are_checked(workload):
    found = {each.key: each.expected for each in problems(own(workload, WRONG))}
    assert found == {
        "nodes.Count.component": "`module:Name`, such as `fairness:FairnessGate`",
        "nodes.Count.inputs.examples": "`NODE.OUTPUT`, such as `ExampleGen.examples`",
    }
    (bad,) = problems(own(workload, "nodes: {fairness-gate: {component: own:Gate}}\n"))
    assert bad.expected == "letters and digits, first a letter, at most 63"


@pytest.mark.parametrize(
    ("first", "second", "cycle"),
    [
        ("after: [Evaluator], before: [Transform]", "", "Transform"),
        ("after: [Two]", "after: [One]", "Two"),
        ("inputs: {x: Two.y}", "inputs: {x: One.y}", "Two"),
        ("before: [Two]", "before: [One]", "Two"),
        ("before: [ExampleGen]", "after: [Pusher], before: [One]", "Pusher"),
    ],
)
def test_a_cycle_is_refused_with_the_nodes_on_it(workload, first, second, cycle):
    text = f"nodes:\n  One: {{component: own:A, {first}}}\n"
    text += f"  Two: {{component: own:A, {second}}}\n"
    (problem,) = problems(own(workload, text))
    base = len(workload.read_text().splitlines())
    assert (problem.key, problem.place.line) == ("nodes.One", base + 2)
    assert cycle in problem.message and "One" in problem.message


def test_a_gate_holds_up_what_comes_after_its_inputs_but_no_other_gate(workload):
    gate = "nodes: {G: {component: own:G, gate: true, inputs: {e: %s}%s}}\n"

    def held_up(made, more=""):
        config = load(own(workload, gate % (made, more))).config
        follows = order.follows(node_ids.ALL, config.nodes)
        return {name for name, earlier in follows.items() if "G" in earlier}

    later = {"InfraValidator", "Pusher", "BulkInferrer"}
    assert held_up("Evaluator.evaluation") == later
    data = held_up("StatisticsGen.statistics")
    assert data >= {"SchemaGen", "Transform", "Trainer", "Pusher"}
    assert not data & {"ExampleGen", "AnomalyGate", "EvaluationGate"}
    assert held_up("Evaluator.evaluation", ", before: [Pusher]") == {"Pusher"}


def test_a_replaced_node_is_gone_and_cannot_be_replaced_twice(workload):
    text = """nodes:
  Stats: {component: own:A, replaces: StatisticsGen}
  More: {component: own:A, inputs: {x: StatisticsGen.statistics}}
  Again: {component: own:A, replaces: StatisticsGen}
  Curated: {component: own:A, replaces: ImportSchemaGen}
  Judge: {component: own:A, replaces: Evaluator}
"""
    base = len(workload.read_text().splitlines())
    (bad,) = problems(own(workload, text))
    assert (bad.place.line, bad.received) == (base + 6, '"Evaluator" (text)')
    found = {
        each.place.line - base: (each.message, each.remedy)
        for each in problems(own(workload, text.partition("  Judge")[0]))
    }
    assert found == {
        2: ("Again replaces StatisticsGen, too", ""),
        3: ("the pipeline has no node `StatisticsGen`", "Did you mean `Again`?"),
        5: ("the pipeline has no node `ImportSchemaGen`", ""),
    }


def test_own_nodes_may_be_steps_of_a_cluster(workload):
    section = "nodes: {{Count: {{component: own:Count}}}}\nkubeflow: {{image: i, {}}}\n"
    good = section.format("steps: {Count: {cpu: 1}}")
    assert load(own(workload, good)).config.kubeflow.step("Count").cpu == "1"
    (bad,) = problems(own(workload, section.format("steps: {Cuont: {cpu: 1}}")))
    assert bad.message == "no step has the name Cuont" and "Count" in bad.expected


def test_a_mistake_in_another_section_hides_none_here(workload):
    text = own(workload, "nodes: {A: {component: own:A, after: [Evaluatr]}}\n")
    text.write_text(text.read_text().replace("[auc, log_loss]", "[auc, log_los]"))
    found = {each.key for each in problems(text)}
    assert found == {"evaluator.metrics.1", "nodes.A.after.0"}

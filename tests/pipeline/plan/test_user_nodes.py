"""Nodes of the user's own in the graph, in compiled forms, and their types."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from strategos.components import node_ids
from strategos.components.container import step_record
from strategos.pipeline.checks import nodes as node_checks
from strategos.pipeline.config import loading
from strategos.pipeline.config.cluster.types import WORKLOAD
from strategos.pipeline.config.loading import ConfigError
from strategos.pipeline.config.nodes import order
from strategos.pipeline.config.nodes.order import names as nodes_of
from strategos.pipeline.plan import caching, graph, planning
from strategos.pipeline.plan.cluster import compiling, steps
from strategos.pipeline.plan.user_nodes import specs as kept

OWN = """\
nodes:
  Counted:
    component: own:Count
    inputs: {examples: ExampleGen.examples}
    parameters: {times: 2}
  Limit:
    component: own:Gate
    inputs: {counted: Counted.counted}
    parameters: {most: 9}
    gate: true
    before: [Trainer]
  Copy:
    component: own:Copy
    inputs: {model: Trainer.model}
    after: [Sum]
  Sum: {component: "own:Beamed"}
"""
WRONG = """\
nodes:
  Counted:
    component: own:Count
    inputs:
      exampels: ExampleGen.examples
    parameters:
      times: many
      unit: 3
      user_module: x
  Limit:
    component: own:Gate
    inputs:
      counted: Counted.count
    parameters: {most: 0.5}
  Copy:
    component: own:Copy
    inputs:
      model: ExampleGen.examples
    parameters:
      depth: true
"""
EXPECTED = """\
3 nodes.Counted: `own:Count` needs `inputs.examples`, of type Examples
5 nodes.Counted.inputs.exampels: `own:Count` has no input `exampels`
7 nodes.Counted.parameters.times: received "many" (text)
8 nodes.Counted.parameters.unit: received 3 (a whole number)
9 nodes.Counted.parameters.user_module: `own:Count` has no parameter `user_module`
13 nodes.Limit.inputs.counted: Counted has no output `count`
18 nodes.Copy.inputs.model: received ExampleGen.examples, of type Examples
20 nodes.Copy.parameters.depth: received true (true or false)
"""


@pytest.fixture
def own(workload, copy_workload):
    """Loads the workload with a section `nodes` and `--set` values; its settings."""
    copy_workload("own", workload.parent)
    main = workload.read_text()

    def load(text=OWN, *sets):
        workload.write_text(main + text)
        return loading.load(workload, (), sets).config

    return load


def ir_of(config, **how):
    from tfx.dsl.compiler.compiler import Compiler

    defaults = planning.parameters(config, config.data.listing())
    fingerprints = caching.Fingerprints.of(config)
    return Compiler().compile(graph.build(config, fingerprints, defaults, **how))


def compiled(config, **how):
    nodes = ir_of(config, **how).nodes
    return {each.pipeline_node.node_info.id: each.pipeline_node for each in nodes}


@pytest.mark.parametrize(
    "sets",
    [
        ("gates={rows: {at_least: 0.5}}",),
        ("evaluator=null", "schema.file=schema.pbtxt"),
        ("pusher=null",),
    ],
)
def test_the_graph_as_stated_is_the_graph_as_wired(own, sets):
    config = own("", *sets)
    wired = compiled(config)
    stated = order.follows(nodes_of(config), config.nodes)
    assert {name: set(node.upstream_nodes) for name, node in wired.items()} == stated
    for name, node in wired.items():
        outputs = node.outputs.outputs.items()
        types = {key: each.artifact_spec.type.name for key, each in outputs}
        assert types == node_ids.OUTPUTS.get(name, {})


def test_own_nodes_stand_where_the_settings_say(own):
    config = own()
    wired = compiled(config)
    stated = order.follows(nodes_of(config), config.nodes)
    assert sorted(wired) == sorted(stated)
    assert {x: set(wired[x].upstream_nodes) for x in wired if stated[x]} == {
        name: earlier for name, earlier in stated.items() if earlier
    }
    assert set(wired["Copy"].upstream_nodes) == {"Sum", "Trainer"}
    assert "Limit" in wired["Trainer"].upstream_nodes
    counted = wired["Counted"].parameters.parameters
    assert counted["times"].field_value.double_value == 2.0
    module = json.loads(counted["user_module"].field_value.string_value)
    assert module["fingerprint"] == caching.Fingerprints.of(config).nodes["Counted"]
    assert module["executor"] == "own.Count_Executor" and not module["gate"]
    assert wired["Counted"].node_info.type.name == "own.Counted"
    assert not {"own", "helper"} & sys.modules.keys()


STAND_INS = """\
nodes:
  Stats:
    component: tfx.components:StatisticsGen
    inputs: {examples: ExampleGen.examples}
    replaces: StatisticsGen
  Features:
    component: own:Features
    inputs: {examples: ExampleGen.examples}
    replaces: Transform
"""


def test_what_replaces_a_node_follows_and_is_followed_as_that_node_was(own):
    config = own(STAND_INS)
    wired = compiled(config)
    assert not {"StatisticsGen", "Transform"} & wired.keys()
    assert set(wired) == set(nodes_of(config))
    takes = {
        (node, key): each.channels[0].producer_node_query.id
        for node in ("SchemaGen", "ExampleValidator", "Trainer")
        for key, each in wired[node].inputs.inputs.items()
    }
    assert takes["SchemaGen", "statistics"] == "Stats"
    assert takes["ExampleValidator", "statistics"] == "Stats"
    assert takes["Trainer", "transform_graph"] == "Features"
    assert "AnomalyGate" in wired["Features"].upstream_nodes
    assert "Features" in wired["Trainer"].upstream_nodes


def test_only_the_same_outputs_replace_those_of_a_node(own):
    config = own(STAND_INS.replace("own:Features", "own:Count"))
    with pytest.raises(ConfigError) as caught:
        compiled(config)
    (problem,) = caught.value.problems
    assert problem.key == "nodes.Features.replaces"
    assert problem.message == "`own:Count` has the outputs counted (HyperParameters)"
    assert "transform_graph (TransformGraph)" in problem.remedy


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_own_nodes_are_steps_of_both_compiled_forms(own, target, tmp_path):
    more = "kubeflow: {image: i}\nvertex: {image: i, project: p, root: gs://b/r}\n"
    config = own(OWN + more, "pusher=null")
    compiling.compile_to(config, target, tmp_path / "out")
    text = (tmp_path / "out").read_text()
    spec = yaml.safe_load(text)  # JSON is YAML
    spec = spec.get("pipelineSpec", spec)
    tasks = spec["root"]["dag"]["tasks"]
    assert "Limit" in tasks["Trainer"]["dependentTasks"]
    assert tasks["Limit"]["inputs"]["artifacts"]["counted"]["taskOutputArtifact"] == {
        "producerTask": "Counted",
        "outputArtifactKey": "counted",
    }
    parameters = tasks["Counted"]["inputs"]["parameters"]
    module = json.loads(parameters["user_module"]["runtimeValue"]["constant"])
    assert (module["folder"], module["module"]) == (WORKLOAD, "own")
    for node, executor in (("Counted", "Executor"), ("Sum", "BeamExecutor")):
        words = steps.container(spec, node)["args"]
        assert f"strategos.components.user_node.executor.{executor}" in words


SHOUTED = """\
  Shouted:
    component: own:Shout
    inputs: {counted: Counted.counted}
    parameters: {word: loud, code: 0}
"""


def test_a_container_component_starts_its_container_here_or_is_a_step(own, tmp_path):
    more = "kubeflow: {image: i, modules: null}\n"
    config = own(OWN + SHOUTED + more, "pusher=null")
    node = compiled(config)["Shouted"]
    assert node.node_info.type.name == "own.Shouted"
    described = node.parameters.parameters["user_module"].field_value.string_value
    program = json.loads(described)["container"]
    assert program["image"] == "localhost/strategos-busybox:1"
    assert len(program["commands"]) == 7
    compiling.compile_to(config, "kubeflow", tmp_path / "out")
    spec = next(yaml.safe_load_all((tmp_path / "out").read_text()))
    container = steps.container(spec, "Shouted")
    assert container["image"] == program["image"]
    assert container["command"][3:] == [
        "{{$.inputs.artifacts['counted'].uri}}",
        "{{$.outputs.artifacts['shouted'].uri}}",
        "it {{$.inputs.parameters['word']}}",
        "{{$.inputs.parameters['code']}}",
    ]
    records = {
        name
        for name, each in spec["components"].items()
        if step_record.OUTPUT in each["outputDefinitions"]["artifacts"]
    }
    assert records == spec["components"].keys() - {"Shouted", "RunReport"}


def test_without_docker_a_container_is_refused_by_its_line(own, monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    config = own(OWN + SHOUTED)
    ir = ir_of(config)
    (problem,) = node_checks.check_containers(config, ir)
    assert problem.key == "nodes.Shouted.component" and problem.place.line
    assert "`own:Shout` runs in a container, and neither Docker nor" in str(problem)
    assert "Install and start Docker" in problem.remedy
    (node,) = (x for x in ir.nodes if x.pipeline_node.node_info.id == "Shouted")
    node.pipeline_node.execution_options.skip.SetInParent()
    assert not node_checks.check_containers(config, ir)
    assert not node_checks.check_containers(own(), ir_of(own()))


@pytest.mark.long
def test_a_placeholder_that_no_container_declares_is_refused(own):
    own()
    text = "import own\nfrom tfx.dsl.component.experimental import placeholders\n"
    text += "from tfx.v1.dsl.experimental import create_container_component\n"
    text += "Odd = create_container_component(name='Odd', image='i', command=[\n"
    text += "    placeholders.OutputUriPlaceholder('made')])\n"
    config = own("nodes: {A: {component: odd:Odd}}\n")
    (config.folder / "odd.py").write_text(text)
    with pytest.raises(ConfigError, match="rejects its arguments: .*OutputUri"):
        compiled(config)


def test_a_gate_changes_no_candidate_and_what_replaces_a_node_does(own):
    def key(text, *sets):
        return caching.candidate_key(ir_of(own(text, *sets)))

    assert key(OWN) == key("") == key(OWN, "nodes.Limit.parameters.most=3")
    assert key("schema: {on_anomaly: warn}\n") == key("")
    assert key(STAND_INS) != key("")


def test_a_changed_checkout_is_no_other_pipeline(own):
    module = compiled(own(), movable=True)["Sum"].parameters.parameters["user_module"]
    assert "folder" not in json.loads(module.field_value.string_value)


def test_all_that_does_not_fit_a_specification_is_refused_at_once(own):
    config = own(WRONG)
    base = config.path.read_text().index("nodes:")
    base = config.path.read_text()[:base].count("\n")

    def told(problems):
        ordered = loading.in_reading_order(problems, str(config.path))
        heads = [x.headline.split(":", 3) for x in ordered]
        return [f"{int(line) - base}{rest}" for _, line, _, rest in heads]

    assert not list(node_checks.check(config))  # types follow
    assert node_checks.unread(config) == list(config.nodes)
    assert told(node_checks.check_deep(config)) == EXPECTED.splitlines()
    assert not node_checks.unread(config)
    with pytest.raises(ConfigError) as caught:
        compiled(config)
    assert told(caught.value.problems) == EXPECTED.splitlines()
    assert told(node_checks.check(config)) == EXPECTED.splitlines()
    helper = config.folder / "helper.py"
    helper.write_text(helper.read_text() + "\n")
    assert not list(node_checks.check(config))  # of other code, nothing is kept


@pytest.mark.parametrize(
    ("component", "says"),
    [
        ("own:plain", "`own:plain` is not a TFX component"),
        ("own:Missing", "own.py has no component `Missing`"),
        ("owm:Count", "module `owm` does not exist"),
        ("tfx.v1.components:Importer", "is not a TFX component"),
    ],
)
def test_what_is_no_component_is_refused_by_its_line(own, component, says):
    config = own(f"nodes: {{A: {{component: {component}}}}}\n")
    found = list(node_checks.check(config))
    if not found:
        with pytest.raises(ConfigError) as caught:
            compiled(config)
        found = caught.value.problems
    (problem,) = found
    assert says in str(problem)
    assert problem.place.line and problem.key == "nodes.A.component"


def test_what_a_constructor_rejects_is_refused_with_its_reason(own):
    own()
    text = "from tfx.dsl.components.base.base_component import BaseComponent\n"
    text += "from own import CopySpec, Executor, ExecutorClassSpec\n"
    text += "class Odd(BaseComponent):\n    SPEC_CLASS = CopySpec\n"
    text += "    EXECUTOR_SPEC = ExecutorClassSpec(Executor)\n"
    text += "    def __init__(self, depth):\n        raise ValueError('too deep')\n"
    config = own("nodes: {A: {component: odd:Odd, parameters: {depth: 3}}}\n")
    (config.folder / "odd.py").write_text(text)
    reason = r"rejects its arguments: .*odd\.py:7: .*too deep"
    with pytest.raises(ConfigError, match=reason):
        compiled(config)


def test_specifications_are_the_same_when_they_are_read_back(own):
    config = own()
    fingerprints = caching.Fingerprints.of(config)
    specs = kept.read(config, fingerprints, kept.classes(config))
    assert kept.kept(config, fingerprints) == specs
    assert specs["Copy"].parameters["depth"].optional
    assert list(specs["Limit"].inputs) == ["counted"]

"""Wires the components of a config to a TFX pipeline; no other module wires ours.

    SpanValidator → SpanGate
      → ExampleGen → StatisticsGen → SchemaGen | ImportSchemaGen → ExampleValidator
      → AnomalyGate → Transform → Trainer → BaselineModel → Evaluator
      → EvaluationGate → InfraValidator → Pusher → BulkInferrer
    ExampleGen → DetailedStatistics; Transform → TransformedStatistics

A gate is a separate node after the one that measures, so that the measurement is
published even if the gate stops the run. A section missing from the config adds no
nodes. `node_ids.FOLLOWS` has the order of the nodes, and `node_ids.OUTPUTS` their
outputs, also for code that does not compile the graph. The user's own nodes (`nodes`)
are wired last.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids, runtime_parameters
from strategos.components.pusher import APPROVAL, CANARY
from strategos.components.user_code import modules
from strategos.components.user_code.workload_paths import PREDICTED, WorkloadPaths
from strategos.pipeline.config.nodes import order
from strategos.pipeline.config.operating import Pusher as PusherSection
from strategos.pipeline.config.sections import Config, Transform
from strategos.pipeline.config.trainer import Trainer
from strategos.pipeline.plan import caching
from strategos.pipeline.plan.caching import Fingerprints, stack_versions
from strategos.pipeline.plan.user_nodes import wiring

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.orchestration.pipeline import Pipeline


def build(
    config: Config,
    fingerprints: Fingerprints,
    defaults: dict[str, Any],
    *,
    movable: bool = False,
    local: Config | None = None,
) -> Pipeline:
    """Wires the components that `config` asks for.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules and schema; compared by caching.
      defaults: A value for each runtime parameter, used where a run gives no other.
      movable: Leaves the paths of the workload's files out of the parameters, so that
        caching does not compare them. Executors then read the paths from the
        environment, see `WorkloadPaths`.
      local: The settings with the paths of this machine, if `config` has the paths of
        the steps of a compiled pipeline.

    Raises:
      ConfigError: A component of `nodes` cannot be imported, or is not used as it
        specifies.
    """
    from tfx.orchestration.pipeline import Pipeline

    on_cluster, local = local is not None, local or config
    paths = WorkloadPaths() if movable else workload_paths(config)
    parameters = _Parameters(defaults)
    spans = _span_nodes(config, paths, fingerprints, parameters)
    data = _data_nodes(config, paths, fingerprints, parameters)
    model = _model_nodes(config, paths, fingerprints, parameters, data, local)
    release = _release_nodes(config, fingerprints, parameters, data, model)
    predicting = _predicting_nodes(
        config, paths, fingerprints, parameters, {**model, **release}
    )
    ours = [*spans, *data.values(), *model.values(), *release.values(), *predicting]
    ours += _statistics_nodes(config, data["examples"], model["transform"])
    made = {node.id: node for node in ours}
    if config.nodes:
        wiring.add(made, local, paths, fingerprints, on_cluster=on_cluster)
    for name, earlier in order.follows(made, config.nodes).items():
        made[name].add_upstream_nodes([made[each] for each in sorted(earlier)])
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=os.path.join(config.run.root, config.name),
        components=list(made.values()),
    )


def workload_paths(config: Config) -> WorkloadPaths:
    """The paths of the files that `config` names."""
    return WorkloadPaths(
        folder=str(config.folder),
        examples=config.data.examples,
        schema=config.schema_.file or "",
        others=config.other_data,
        weights=config.trainer.named_weights or "",
        plugins=config.plugins,
    )


class _Parameters:
    """The runtime parameters as keyword arguments of the nodes that take them."""

    def __init__(self, defaults: dict[str, Any]):
        from tfx.orchestration.data_types import RuntimeParameter

        self._made = {
            each.name: RuntimeParameter(
                name=each.name, ptype=each.passed_type, default=defaults[each.name]
            )
            for each in runtime_parameters.TABLE
        }

    def of(self, node: str) -> dict[str, Any]:
        """The keyword arguments of the node with this id."""
        arguments = runtime_parameters.taken_by(node)
        return {each.argument: self._made[each.name] for each in arguments}


def _span_nodes(
    config: Config,
    paths: WorkloadPaths,
    fingerprints: Fingerprints,
    parameters: _Parameters,
) -> list[BaseNode]:
    if not config.gates:
        return []
    from strategos.components.gate.component import SpanGate
    from strategos.components.span_validator.component import SpanValidator

    gates = config.gates.without_paths()
    if fingerprints.gates:
        gates["versions"] = fingerprints.gates
    validator = SpanValidator(
        pattern=paths.examples,
        others=_json(config.gates.other_data if paths.others else {}),
        gates=_json({**gates, "on_anomaly": config.schema_.on_anomaly}),
        schema_file=paths.schema,
        schema_fingerprint=fingerprints.schema,
        null_values=_json(config.data.null_values),
        reading=config.data.reading.to_json(),
        **parameters.of(node_ids.SPAN_VALIDATOR),
    )
    return [validator, SpanGate(anomalies=validator.outputs["anomalies"])]


def _data_nodes(
    config: Config,
    paths: WorkloadPaths,
    fingerprints: Fingerprints,
    parameters: _Parameters,
) -> dict[str, BaseNode]:
    from strategos.components.example_gen.component import ExampleGen
    from strategos.components.example_validator.component import ExampleValidator
    from strategos.components.gate.component import AnomalyGate
    from strategos.components.statistics_gen.component import StatisticsGen

    example_gen = ExampleGen(
        pattern=paths.examples,
        split=_json(config.data.split.settings()),
        schema_file=paths.schema,
        schema_fingerprint=fingerprints.schema,
        label=config.label if config.target.withheld else "",
        null_values=_json(config.data.null_values),
        reading=config.data.reading.to_json(),
        unlabelled=config.data.unlabelled,
        stack=", ".join(filter(None, (stack_versions(), fingerprints.readers))),
        **parameters.of(node_ids.EXAMPLE_GEN),
    )
    examples = example_gen.outputs["examples"]
    statistics_gen = StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]
    schema_node = _schema_node(paths, fingerprints, statistics)
    validator = ExampleValidator(
        statistics=statistics, schema=schema_node.outputs["schema"]
    )
    gate = AnomalyGate(
        anomalies=validator.outputs["anomalies"],
        schema=schema_node.outputs["schema"],
        on_anomaly=config.schema_.on_anomaly,
        pattern=paths.examples,
        null_values=_json(config.data.null_values),
        reading=config.data.reading.to_json(),
        **parameters.of(node_ids.ANOMALY_GATE),
    )
    return {
        "examples": example_gen,
        "statistics": statistics_gen,
        "schema": schema_node,
        "validator": validator,
        "gate": gate,
    }


def _statistics_nodes(
    config: Config, example_gen: BaseNode, transform: BaseNode
) -> list[BaseNode]:
    if not config.statistics:
        return []
    from strategos.components.statistics_gen import component

    nodes: list[BaseNode] = []
    made = transform.outputs["transformed_examples"]
    for kind, examples, sliced in (
        (component.DetailedStatistics, example_gen.outputs["examples"], True),
        (component.TransformedStatistics, made, False),
    ):
        if kind.__name__ in config.statistics.nodes:
            request = config.statistics.request(config.weight, sliced=sliced)
            nodes.append(kind(examples=examples, request=_json(request)))
    return nodes


def _schema_node(
    paths: WorkloadPaths, fingerprints: Fingerprints, statistics: Any
) -> BaseNode:
    if fingerprints.schema:
        from strategos.components.import_schema_gen.component import ImportSchemaGen

        return ImportSchemaGen(
            schema_file=paths.schema, fingerprint=fingerprints.schema
        )
    from strategos.components.schema_gen.component import SchemaGen

    return SchemaGen(statistics=statistics, infer_feature_shape=True)


def _model_nodes(
    config: Config,
    paths: WorkloadPaths,
    fingerprints: Fingerprints,
    parameters: _Parameters,
    data: dict[str, BaseNode],
    local: Config,
) -> dict[str, BaseNode]:
    from strategos.components.trainer.component import Trainer
    from strategos.components.transform.component import Transform

    schema = data["schema"].outputs["schema"]
    fn_args = modules.takes_fn_args(str(local.folder), config.trainer.module)
    transform = Transform(
        examples=data["examples"].outputs["examples"],
        schema=schema,
        user_module=_user_module(paths, config.transform, fingerprints.preprocessing),
        # A module for TFX's Trainer expects the label under the name that it chose.
        label="" if fn_args else config.label,
        weight="" if fn_args else config.weight or "",
        custom_config=config.transform.custom_config,
        missing=config.data.missing,
    )
    trainer = Trainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        user_module=_user_module(paths, config.trainer, fingerprints.model),
        label=config.label,
        weight=config.weight or "",
        settings=_json(dataclasses.asdict(config.trainer.settings())),
        null_values=_json(config.data.null_values),
        reading=config.data.reading.to_json(),
        **parameters.of(node_ids.TRAINER),
    )
    return {"transform": transform, "trainer": trainer}


def _release_nodes(
    config: Config,
    fingerprints: Fingerprints,
    parameters: _Parameters,
    data: dict[str, BaseNode],
    model: dict[str, BaseNode],
) -> dict[str, BaseNode]:
    nodes: dict[str, BaseNode] = {}
    candidate = model["trainer"].outputs["model"]
    examples = data["examples"].outputs["examples"]
    schema = data["schema"].outputs["schema"]
    if config.evaluator:
        nodes |= _evaluation_nodes(
            config, fingerprints, parameters, examples, schema, model
        )
    if config.pusher:
        from strategos.components.infra_validator.component import InfraValidator
        from strategos.components.pusher.component import Pusher

        infra = InfraValidator(model=candidate, examples=examples, schema=schema)
        blessing = nodes["evaluator"].outputs["blessing"] if nodes else None
        pusher = Pusher(
            model=candidate,
            model_blessing=blessing,
            infra_blessing=infra.outputs["blessing"],
            examples=examples,
            evaluation=nodes["evaluator"].outputs["evaluation"] if nodes else None,
            **_target(config.pusher),
            **parameters.of(node_ids.PUSHER),
        )
        nodes |= {"infra": infra, "pusher": pusher}
    return nodes


def _evaluation_nodes(
    config: Config,
    fingerprints: Fingerprints,
    parameters: _Parameters,
    examples: Any,
    schema: Any,
    model: dict[str, BaseNode],
) -> dict[str, BaseNode]:
    from strategos.components.baseline_model.component import BaselineModel
    from strategos.components.evaluator.component import Evaluator
    from strategos.components.gate.component import EvaluationGate

    baseline = BaselineModel(**parameters.of(node_ids.BASELINE_MODEL))
    evaluator = Evaluator(
        examples=examples,
        model=model["trainer"].outputs["model"],
        baseline_model=baseline.outputs["model"],
        schema=schema,
        evaluator=caching.evaluator_section(config, fingerprints),
        label=config.label,
        weight=config.weight or "",
    )
    gate = EvaluationGate(
        evaluation=evaluator.outputs["evaluation"],
        blessing=evaluator.outputs["blessing"],
    )
    return {"baseline": baseline, "evaluator": evaluator, "gate": gate}


def _predicting_nodes(
    config: Config,
    paths: WorkloadPaths,
    fingerprints: Fingerprints,
    parameters: _Parameters,
    before: Mapping[str, BaseNode],
) -> list[BaseNode]:
    section = config.predict
    if not section:
        return []
    from strategos.components.bulk_inferrer.component import BulkInferrer

    evaluator, pusher = before.get("evaluator"), before.get("pusher")
    node = BulkInferrer(
        model=before["trainer"].outputs["model"],
        model_blessing=evaluator.outputs["blessing"] if evaluator else None,
        pushed_model=pusher.outputs["pushed_model"] if pusher else None,
        pattern=paths.others.get(PREDICTED, ""),
        destination=section.to,
        format=section.format,
        columns=_json(section.columns),
        reading=config.data.reading.to_json(),
        readers=fingerprints.predicted_readers,
        pipeline=config.name,
        **parameters.of(node_ids.BULK_INFERRER),
    )
    return [node]


def _target(pusher: PusherSection) -> dict[str, Any]:
    """Where the Pusher pushes to: the folder that serves, or its canary slot."""
    to = pusher.target.uri
    if pusher.slot:
        slot = APPROVAL if pusher.approval else CANARY
        return {"destination": pusher.slot.uri, "keep": 1, "live": to, "slot": slot}
    endpoint = pusher.endpoint.settings().to_json() if pusher.endpoint else ""
    return {"destination": to, "keep": pusher.keep, "endpoint": endpoint}


def _user_module(
    paths: WorkloadPaths, section: Transform | Trainer, fingerprint: str
) -> str:
    return _json(wiring.module(paths, section, fingerprint))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)

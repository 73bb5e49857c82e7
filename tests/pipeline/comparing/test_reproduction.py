"""What a run that is made again does without."""

from __future__ import annotations

from strategos.components import node_ids
from strategos.pipeline.comparing import reproduction
from strategos.pipeline.config.loading import load
from strategos.pipeline.config.nodes import order
from strategos.pipeline.made_from.record import Kept, MadeFrom

YAML = """\
name: small
label: late
data: {examples: "data/*.csv"}
transform: {module: preprocessing}
trainer: {module: model}
evaluator: {task: binary, metrics: [auc]}
pusher: {to: serving}
predict: {data: "new/*.csv", to: scored}
statistics: {slices: [carrier]}
nodes:
  Look: {component: own:Look, inputs: {statistics: DetailedStatistics.statistics}}
  Send: {component: own:Send, inputs: {seen: Look.seen}}
  Load: {component: own:Load, after: [BulkInferrer]}
  Gate: {component: own:Gate, inputs: {model: Trainer.model}, before: [Pusher]}
  Made: {component: own:Made, replaces: Transform}
"""


def test_a_run_is_made_again_without_own_nodes_of_what_is_left_out(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(YAML)
    settings = load(file).config.model_dump(mode="json", by_alias=True)
    made_from = MadeFrom(settings, str(file), {}, {}, (), "", {})
    kept = Kept("run", made_from, str(tmp_path / "contents"))
    again = load(reproduction.write(kept, tmp_path / "again", "")).config
    assert [*again.nodes] == ["Gate", "Made"]
    assert [*again.nodes["Gate"].before] == []
    assert not {node_ids.PUSHER, node_ids.BULK_INFERRER} & {*order.names(again)}
    assert order.replaced(again.nodes) == {node_ids.TRANSFORM: "Made"}

"""Decisions before the first node: the model to start from, compiling, parameters."""

from __future__ import annotations

import json
import shutil

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import events
from strategos.components.errors import BadInputError
from strategos.components.user_code import workload_paths
from strategos.pipeline.config.loading import load
from strategos.pipeline.plan import caching, graph, planning
from strategos.pipeline.plan.production import Production
from strategos.pipeline.root import metadata


@pytest.fixture
def latest(workload):
    return load(workload, sets=["trainer.warm_start=latest"]).config


def test_nothing_to_start_from_is_reported(latest, tmp_path):
    sink = tmp_path / "events"
    events.open_sink(str(sink))
    planning._report_warm_start(latest, None, "none")
    events.open_sink(None)
    (event,) = map(json.loads, sink.read_text().splitlines())
    assert event["event"] == "note"
    assert f"nothing has been pushed to {latest.pusher.to}" in event["message"]


def test_weights_that_are_gone_are_rejected_with_the_setting_that_asks(
    latest, tmp_path
):
    pushed = Production(str(tmp_path / "serving" / "2"), 2, "c", "none")
    weights = tmp_path / "model" / "4" / "Format-Weights"
    with pytest.raises(BadInputError) as caught:
        planning._report_warm_start(latest, pushed, str(weights))
    assert str(caught.value).startswith("--set trainer.warm_start=latest: ")
    assert f"should be in {weights}, which is gone" in str(caught.value)
    weights.mkdir(parents=True)
    planning._report_warm_start(latest, pushed, str(weights))
    planning._report_warm_start(latest, pushed, "gs://bucket/model/4/Format-Weights")
    # "none": the model in production itself started from fresh weights.
    planning._report_warm_start(latest, pushed, "none")


def test_weights_behind_the_model_in_production_itself_may_be_gone(latest, monkeypatch):
    """Such as after `strategos clean`: an unchanged run takes the model as it is."""
    serving = Production("/serving/2", 2, "key", model=1)
    production = planning.production
    monkeypatch.setattr(production, "newest", lambda *_: serving)
    monkeypatch.setattr(production, "baseline", lambda *_: "none")
    monkeypatch.setattr(production, "warm_start", lambda *_: "/gone")
    assert planning._of_production(latest, None, "key")["warm_start"] == "/gone"
    with pytest.raises(BadInputError, match="which is gone"):
        planning._of_production(latest, None, "another key")


def test_a_version_without_a_record_has_no_weights_to_start_from(latest, workload):
    unknown = Production("/serving/2", 2)
    with pytest.raises(BadInputError, match="no record of /serving/2"):
        planning._report_unknown(latest, unknown)
    planning._report_unknown(load(workload).config, unknown)


class InProcess:
    """Compiles in this process, and counts how often."""

    def __init__(self):
        self.compiled = 0

    def compile(self, config, fingerprints, defaults, target):
        from tfx.dsl.compiler.compiler import Compiler

        pipeline = graph.build(config, fingerprints, defaults, movable=True)
        target.write_bytes(Compiler().compile(pipeline).SerializeToString())
        self.compiled += 1


@pytest.fixture
def plan(workload):
    """Plans the workload with `--set` values; returns the nodes' parameters by id."""
    client = InProcess()

    def make(*sets, **options):
        config = load(workload, sets=sets).config
        files = planning.RunFiles(config.run.root, "now")
        metadata.initialise(metadata.of(config))
        asked = planning.RunOptions(**options)
        data = config.data.listing()
        made = planning.plan(config, data, asked, files, client)
        make.ir, make.facts = made.ir, made.facts
        make.environment = made.environment
        nodes = (node.pipeline_node for node in made.ir.nodes)
        return {node.node_info.id: node.parameters.parameters for node in nodes}

    make.client = client
    return make


def test_a_run_without_a_baseline_compares_with_nothing_and_records_so(plan, workload):
    version = workload.parent / "serving" / "7"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    compared = plan()["BaselineModel"]["baseline"].field_value.string_value
    assert (compared, plan.facts.get("reason")) == (str(version), None)
    alone = plan(without_baseline=True, reason="Due: new data.")
    assert alone["BaselineModel"]["baseline"].field_value.string_value == "none"
    told = "Due: new data. Judged without the model in production (--without-baseline)."
    assert plan.facts["reason"] == told


def test_two_roots_do_not_push_to_one_place_unless_one_is_taken_over(plan, workload):
    """Such as a second operator's, or that of production by mistake."""

    def pushed_by():
        return json.loads(plan.environment["STRATEGOS_PUSHED_BY"])

    folder = workload.parent
    about = folder / "serving" / "7" / "assets.extra" / "manifest.json"
    about.parent.mkdir(parents=True)
    (folder / "serving" / "7" / "saved_model.pb").touch()
    about.write_text("{}")  # pushed before manifests said by whom
    plan()
    first = pushed_by()
    assert first["place"].endswith(f":{folder}/runs") and first["pipeline"] == "flights"
    about.write_text(json.dumps({"pushed_by": first}))
    plan()
    assert pushed_by() == first
    other = "run.root=other"
    with pytest.raises(BadInputError, match="pusher.to: .*of another root") as refused:
        plan(other)
    assert f"--take-over {first['place']}" in str(refused.value)
    plan(other, to_node="EvaluationGate")  # pushes nothing
    with pytest.raises(BadInputError, match="pusher.to: .*of another root"):
        plan(other, "pusher.canary=trial")
    plan("pusher.canary=trial")
    assert json.loads(plan.environment["STRATEGOS_ABORTED_MODELS"]) == []
    with pytest.raises(BadInputError):
        plan(other, take_over="elsewhere:/runs")
    plan(other, take_over=first["place"])
    assert pushed_by()["root"] != first["root"]
    about.write_text(json.dumps({"pushed_by": pushed_by()}))
    plan(other)
    shutil.move(folder / "other", folder / "moved")
    plan("run.root=moved")
    with pytest.raises(BadInputError, match="of another root"):
        plan()


def test_a_place_that_nobody_pushed_from_is_not_taken_over(plan, tmp_path):
    sink = tmp_path / "events"
    events.open_sink(str(sink))
    plan(take_over="elsewhere:/runs")
    events.open_sink(None)
    assert "--take-over elsewhere:/runs has no effect" in sink.read_text()


def test_a_root_begun_anew_at_its_place_pushes_where_it_did_before(
    plan, workload, tmp_path
):
    folder, sink = workload.parent, tmp_path / "events"
    plan()
    before = json.loads(plan.environment["STRATEGOS_PUSHED_BY"])
    about = folder / "serving" / "7" / "assets.extra" / "manifest.json"
    about.parent.mkdir(parents=True)
    (folder / "serving" / "7" / "saved_model.pb").touch()
    about.write_text(json.dumps({"pushed_by": before}))
    shutil.rmtree(folder / "runs")
    events.open_sink(str(sink))
    plan()
    events.open_sink(None)
    after = json.loads(plan.environment["STRATEGOS_PUSHED_BY"])
    assert after["root"] != before["root"] and after["place"] == before["place"]
    assert "before that root was deleted" in sink.read_text()
    for difference in ({"pipeline": "flowers"}, {"place": f"elsewhere:{folder}/runs"}):
        about.write_text(json.dumps({"pushed_by": before | difference}))
        with pytest.raises(BadInputError, match="of another root"):
            plan()
    about.write_text(json.dumps({"pushed_by": before}))
    connection = metadata.connection(f"{folder}/runs", "sqlite", None)
    store = metadata.store(connection, 60)
    kind = store.put_artifact_type(mlmd.ArtifactType(name="PushedModel"))
    store.put_artifacts([mlmd.Artifact(type_id=kind)])
    with pytest.raises(BadInputError, match="of another root"):
        plan()  # two histories that push in turn


@pytest.mark.parametrize(
    ("first", "last", "runs"),
    [
        ("Trainer", "Transform", []),
        ("Pusher", "ExampleGen", []),
        ("Trainer", "Trainer", ["Trainer"]),
        ("Transform", "Trainer", ["Transform", "Trainer"]),
    ],
)
def test_a_part_without_any_node_is_bad_input(plan, first, last, runs):
    if runs:
        plan(from_node=first, to_node=last)
        nodes = (node.pipeline_node for node in plan.ir.nodes)
        marked = [n for n in nodes if n.execution_options.HasField("run")]
        assert [node.node_info.id for node in marked] == runs
        return
    expected = f"--to: received '{last}' with --from '{first}'.*no node would run"
    with pytest.raises(BadInputError, match=expected) as refused:
        plan(from_node=first, to_node=last)
    assert refused.value.exit_code == 2


def test_inputs_are_looked_up_without_the_executions_of_all_past_runs(plan):
    plan()
    inputs = [node.pipeline_node.inputs.inputs.values() for node in plan.ir.nodes]
    channels = [each for some in inputs for spec in some for each in spec.channels]
    queries = [{q.type.name for q in each.context_queries} for each in channels]
    assert {"pipeline_run", "node"} in queries
    assert all("node" in names and "pipeline" not in names for names in queries)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("trainer.batch_size", 7),
        ("trainer.epochs", 9),
        ("trainer.seed", 8),
        ("trainer.hyperparameters.units", [8]),
        ("trainer.distribution.strategy", "one_device"),
        ("data.spans", 1),
    ],
)
def test_a_runtime_parameter_by_set_compiles_nothing_anew(plan, setting, value):
    plan()
    found = plan(f"{setting}={value}")
    assert plan.client.compiled == 1
    node = "ExampleGen" if setting == "data.spans" else "Trainer"
    given = found[node][setting.split(".")[1]].field_value
    assert str(value) in (given.string_value or str(given.int_value))
    plan("data.split.eval=5")
    assert plan.client.compiled == 2


def warm_start(config):
    return planning.parameters(config, config.data.listing())["warm_start"]


def test_a_folder_stands_for_the_weights_in_it(workload):
    for given in ("old/4", "old/4/Format-Weights"):
        config = load(workload, sets=[f"trainer.warm_start={given}"]).config
        expected = str(workload.parent / "old" / "4" / "Format-Weights")
        assert warm_start(config) == expected
    assert warm_start(load(workload).config) == "none"


def test_weights_count_by_what_they_are_and_not_by_where_they_lie(write, workload):
    def parameter(folder):
        config = load(workload, sets=[f"trainer.warm_start={folder}"]).config
        named = warm_start(config)
        found = caching.weights_by_content(named)
        paths = graph.workload_paths(config)
        assert paths.weights == named
        return found, paths.to_environment()

    write("old/4/Format-Weights/weights.index", "1")
    before, environment = parameter("old/4")
    assert before.startswith("sha256:")
    (workload.parent / "old").rename(workload.parent / "new")
    assert parameter("new/4")[0] == before
    write("new/4/Format-Weights/weights.index", "2")
    assert parameter("new/4")[0] != before
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*environment.popitem())
        expected = str(workload.parent / "old" / "4" / "Format-Weights")
        assert workload_paths.weights(before) == expected


@pytest.mark.parametrize(
    ("runner", "root", "exchange"),
    [
        ("portable", "s3://b/r/", "s3://b/r/p/.engine"),
        ("portable", "gs://b/r", "gs://b/r/p/.engine"),
        ("portable", "runs", None),
        ("direct", "s3://b/r", None),
    ],
)
def test_only_workers_under_a_root_in_a_store_need_an_exchange(
    workload, runner, root, exchange
):
    endpoint = "run.engine.options.job_endpoint=host:1"
    sets = [f"run.engine.runner={runner}", endpoint] if runner == "portable" else []
    server = "run.metadata=mysql://user@host:1/database"
    config = load(workload, sets=["name=p", server, f"run.root={root}", *sets]).config
    engine = planning.engine_of(config)
    assert (engine.runner, engine.exchange) == (runner, exchange)

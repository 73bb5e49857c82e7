"""The settings: defaults, paths, parameters, and rejected combinations."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from strategos.pipeline.config.loading import ConfigError, load
from strategos.pipeline.config.operating import Schedule
from strategos.pipeline.config.sections import Config

SHORTEST = """\
label: late
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model}
"""


_ENDPOINT = "{name: projects/p/locations/r/endpoints/7, image: i}"


def problems(path, **changes) -> list:
    with pytest.raises(ConfigError) as caught:
        load(path, **changes)
    return caught.value.problems


def only_problem(path, **changes):
    found = problems(path, **changes)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


def test_the_shortest_file_names_data_label_and_two_modules(write):
    path = write("my Flights_2013/pipeline.yaml", SHORTEST)
    config = load(path).config
    assert config.name == "my-flights-2013"
    assert (config.path, config.folder) == (path, path.parent)
    assert config.run.root == str(path.parent / "runs")
    assert config.trainer.batch_size == 256
    assert config.trainer.distribution.strategy == "auto"
    assert config.schema_.on_anomaly == "stop"
    assert config.data.split.by == "ratio"
    assert config.evaluator is None and config.pusher is None


def test_settings_are_frozen(workload):
    config = load(workload).config
    with pytest.raises(ValidationError):
        config.trainer.epochs = 3


def test_paths_are_absolute_from_the_folder_of_the_yaml(workload, monkeypatch):
    monkeypatch.chdir(workload.parent.parent)
    relative = Path(workload.parent.name) / "pipeline.yaml"
    sets = ["schema.file=../x/schema.pbtxt", "run.root=~/runs"]
    config = load(relative, sets=sets).config
    assert config.data.examples == str(workload.parent / "data/span-{SPAN}/*.csv")
    assert config.schema_.file == str(workload.parent.parent / "x" / "schema.pbtxt")
    assert config.run.root == str(Path.home() / "runs")
    assert config.path == workload


def test_urls_are_not_made_paths(workload):
    sets = ["run.root=gs://bucket/x", "run.metadata=postgresql://me@host/db"]
    assert load(workload, sets=sets).config.run.root == "gs://bucket/x"


def test_a_span_may_be_written_as_a_number(workload):
    assert load(workload, sets=["data.spans=3"]).config.data.spans == "3"


def test_runtime_parameters_are_numbers_and_text(workload):
    parameters = load(workload).config.runtime_parameters()
    assert parameters == {
        "batch_size": 512,
        "epochs": 5,
        "seed": 1,
        "hyperparameters": '{"learning_rate": 0.001, "units": [64, 32]}',
        "distribution": '{"strategy": "auto"}',
        "warm_start": "none",
        "spans": "all",
    }


def test_max_age_is_a_duration():
    assert Schedule(max_age="2w").max_age_seconds == 14 * 86400
    assert Schedule().max_age_seconds is None


def test_a_config_needs_no_file():
    config = Config.model_validate(
        {
            "name": "x",
            "label": "y",
            "data": {"examples": "a.csv"},
            "transform": {"module": "t"},
            "trainer": {"module": "m"},
        }
    )
    assert config.folder == Path.cwd()


@pytest.mark.parametrize(
    ("setting", "key", "expected"),
    [
        ("data.split.keys=[]", "data.split.keys", "needs columns to hash"),
        ("data.split={by: ratio}", "data.split.keys", "does not use keys"),
        ("data.split={by: span}", "data.split.keys", "`by: span` does not use keys"),
        ("data.split.spans=2", "data.split.spans", "`by: hash` does not use it"),
        ("data.split.validation=8", "data.split.validation", "nothing of `train: 8`"),
        (
            "data.split={by: time, keys: [], eval: 3d}",
            "data.split.column",
            "`column: day`",
        ),
        (
            "data.split={by: time, keys: [], column: d}",
            "data.split.eval",
            "`eval: 30d`",
        ),
        ("data.split.eval=30d", "data.split.eval", "a time is for `by: time`"),
        ("data.split.eval=0", "data.split.eval", "a whole number, at least 1"),
        ("data.split.eval=soon", "data.split.eval", "a duration such as 30d"),
        (
            "data.split={by: time, keys: [], column: d, eval: 3d, validation: 1}",
            "data.split.validation",
            "`validation: 10d`",
        ),
        ("data.spans=6..1", "data.spans", "`1..6`"),
        ("data.spans=new", "data.spans", "all, latest"),
        ("data.spans=latest 0", "data.spans", "latest 6"),
        ("data.complete={}", "data.complete.quiet", "neither `marker` nor `quiet`"),
        ("data.complete.marker=ok", "data.complete.marker", "the marker has no span"),
        ("evaluator.bounds.auc.at_least=1.7", "evaluator.bounds.auc.at_least", "1"),
        (
            "evaluator.bounds.log_loss.at_most=-1",
            "evaluator.bounds.log_loss.at_most",
            "0",
        ),
        ("data.missing={late: 0}", "data.missing.late", "`unlabelled: drop`"),
        ("data.missing.carrier=true", "data.missing.carrier", "a text or a number"),
        ("data.missing.carrier=[1]", "data.missing.carrier", "a text or a number"),
        ("data.csv.delimiter=;;", "data.csv.delimiter", "one ASCII character"),
        ("data.csv.quote=','", "data.csv.quote", "the quote is the delimiter"),
        ("data.csv.decimal=;", "data.csv.decimal", "Allowed: . or ,"),
        ("data.csv.encoding=cp99", "data.csv.encoding", "no text encoding"),
        ("data.on_bad_row=skip", "data.on_bad_row", "fail or quarantine"),
        ("data.max_bad_fraction=2", "data.max_bad_fraction", "1"),
        ("evaluator.metrics=[]", "evaluator.metrics", "one metric or more"),
        ("evaluator.metrics=[auc, log_los]", "evaluator.metrics.1", "`log_loss`?"),
        ("evaluator.metrics=[auc, rmse]", "evaluator.metrics.1", "or regression"),
        ("evaluator.metrics=[auc, acc]", "evaluator.metrics.1", "`accuracy`?"),
        ("evaluator.metrics=[auc, roc_auc]", "evaluator.metrics.1", "mean `auc`?"),
        (
            "evaluator.metrics=[auc, BinaryAccuracy]",
            "evaluator.metrics.1",
            "Write `accuracy`.",
        ),
        (
            "evaluator={task: regression, metrics: [mean_squared_error], bounds: null}",
            "evaluator.metrics.0",
            "mean `mse`?",
        ),
        ("evaluator.bounds.f2={}", "evaluator.bounds.f2", "`f2` is not a metric"),
        ("evaluator.bounds.acc={}", "evaluator.bounds.acc", "Did you mean `accuracy`?"),
        ("evaluator.bounds.rmse={}", "evaluator.bounds.rmse", "for reconstruction or"),
        ("evaluator.task=ranking", "evaluator.task", "regression or reconstruction"),
        ("label=[late, late]", "label", "`late` is named twice"),
        ("label=[late, delay]", "evaluator.task", "`label` names 2 columns"),
        (
            "evaluator={task: multi_label, metrics: [macro_auc, rmse]}",
            "evaluator.metrics.1",
            "`rmse` is not defined for the task multi_label",
        ),
        ("evaluator.bounds.recall={}", "evaluator.bounds.recall", "not in `eval"),
        (
            "evaluator.bounds.auc.slices.carier={at_least: 1}",
            "evaluator.bounds.auc.slices.carier",
            "Did you mean `carrier`, or",
        ),
        (
            "gates.features.x.mean={at_least: 2, at_most: 1}",
            "gates.features.x.mean.at_least",
            "2 is more than at_most (1): nothing can pass",
        ),
        ("gates.keys.k={columns: []}", "gates.keys.k.columns", "names no column"),
        (
            "gates.keys.k={columns: [a], file_columns: [b]}",
            "gates.keys.k.file_columns",
            "names columns of `file`, which is not set",
        ),
        (
            "gates.keys.k={columns: [a], file: f.csv, file_columns: [a, b]}",
            "gates.keys.k.file_columns",
            "names 2, and the key has 1 column",
        ),
        (
            "gates.keys.k={columns: [a], file: 'x/{SPAN}.csv'}",
            "gates.keys.k.file",
            "the pattern has spans",
        ),
        ("gates.features.x.values={}", "gates.features.x.values", "sets neither `at_"),
        (
            "gates.features.x.shares={a: {at_most: 5}}",
            "gates.features.x.shares.a.at_most",
            "5",
        ),
        (
            "evaluator.bounds.auc.at_most=0.1",
            "evaluator.bounds.auc.at_least",
            "nothing can pass",
        ),
        (
            "evaluator.bounds.auc.slices.carrier.at_most=0.1",
            "evaluator.bounds.auc.slices.carrier.at_least",
            "nothing can pass",
        ),
        (
            "evaluator.bounds.log_loss={may_drop: 0.1}",
            "evaluator.bounds.log_loss.may_drop",
            "Use `may_rise`",
        ),
        (
            "evaluator.bounds.auc.slices.carrier={may_rise: 0.1}",
            "evaluator.bounds.auc.slices.carrier.may_rise",
            "Use `may_drop`",
        ),
        (
            "evaluator.bounds.auc.may_drop=-1",
            "evaluator.bounds.auc.may_drop",
            "a number, at least 0",
        ),
        (
            "evaluator.bounds.auc.better_than=baseline",
            "evaluator.bounds.auc.better_than",
            "trivial",
        ),
        (
            "evaluator={metrics: [recall], bounds: {auc: null, recall: {better_than: "
            "trivial}}}",
            "evaluator.bounds.recall.better_than",
            "one of auc, pr_auc, accuracy, log_loss, mae, mse, rmse",
        ),
        ("evaluator.allow_constant=1", "evaluator.allow_constant", "true or false"),
        ("evaluator.bounds.auc=0.7", "evaluator.bounds.auc", "with the keys at_least"),
        ("schedule={new_spans: never}", "schedule", "no run is ever due"),
        ("schedule.cron=0 0 30 2 *", "schedule.cron", "Bad day-of-month"),
        ("schedule.cron=0 0 2 * * *", "schedule.cron", "five fields of cron"),
        ("schedule.cron=61 0 * * *", "schedule.cron", "Bad minute"),
        ("schedule.new_spans=0", "schedule.new_spans", "at least 1, or never"),
        ("notify={}", "notify.webhook", "neither `command` nor `webhook`"),
        (
            "notify={command: [x], template: {text: x}}",
            "notify.template",
            "only `webhook` sends it",
        ),
        (
            "notify={webhook: true, template: {a: [{b: '{outcom}'}]}}",
            "notify.template",
            "Did you mean `{outcome}`?",
        ),
        ("notify={command: [x], on: [blessed]}", "notify.on.0", "success, failure"),
        ("schedule.timezone=Mars", "schedule.timezone", "such as Europe/Berlin"),
        ("schedule={max_age: 7 days}", "schedule.max_age", "7d"),
        ("run.root=gs://b/x", "run.metadata", "SQLite"),
        ("run.metadata=oracle://u@h/d", "run.metadata", "mysql://"),
        ("run.metadata=mysql://u@h", "run.metadata", "mysql://"),
        ("run.metadata=mysql://u@h:port/d", "run.metadata", "mysql://"),
        ("trainer.hyperparameters.a=[.nan]", "trainer.hyperparameters", "finite"),
        ("trainer.seed=-1", "trainer.seed", "at least 0"),
        ("trainer.batch_size=true", "trainer.batch_size", "a whole number"),
        ("trainer.batch_size=1.5", "trainer.batch_size", "received 1.5 (a number)"),
        ("trainer.module=my model", "trainer.module", "such as `model`"),
        ("pusher={to: ''}", "pusher.to", "an empty path"),
        (f"pusher.endpoint={_ENDPOINT}", "pusher.endpoint", "cannot read models from"),
        ("pusher.canary=serving/", "pusher.canary", "apart from those that serve"),
        ("pusher.canary=serving/trial", "pusher.canary", "apart from those that"),
        (
            f"pusher={{to: 'gs://b/f', canary: 'gs://b/c', endpoint: {_ENDPOINT}}}",
            "pusher.endpoint",
            "cannot be combined with `pusher.canary`",
        ),
        ("pusher.endpoint={name: x, image: i}", "pusher.endpoint.name", "endpoints/ID"),
        ("label=''", "label", "an empty text"),
        ("name=Flights!", "name", "lower-case"),
        ("vertex={project: p, image: i, root: /x}", "vertex.root", "gs://"),
    ],
)
def test_what_cannot_work_is_rejected(workload, setting, key, expected):
    problem = only_problem(workload, sets=[setting])
    assert problem.key == key
    assert expected in str(problem)


def test_spans_without_a_placeholder_are_rejected(workload):
    sets = ["data.examples=data/*.csv", "data.spans=1..3", "schedule={}"]
    found = problems(workload, sets=sets)
    assert [problem.key for problem in found] == ["data.spans"]
    found = problems(workload, sets=[sets[0], sets[2]])
    assert [problem.key for problem in found] == ["schedule"]
    assert "no new span can arrive" in str(found[0])

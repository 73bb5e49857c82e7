"""What users read when the YAML is wrong: every problem, its place, what to do."""

from __future__ import annotations

import pytest

from strategos.components.errors import BadInputError
from strategos.pipeline.config.loading import ConfigError, load

FIVE_MISTAKES = """\
label: late
data:
  examples: data/*.csv
  spann: all
transform: {module: preprocessing}
trainer:
  module: model
  batch_size: many
  distribution: {strategy: mirored}
evaluator:
  metrics: [auc, rmse]
  slices: carrier
"""


def problems(path, **changes) -> list:
    with pytest.raises(ConfigError) as caught:
        load(path, **changes)
    return caught.value.problems


def test_five_mistakes_are_named_at_once_with_their_lines(write):
    path = write("pipeline.yaml", FIVE_MISTAKES)
    with pytest.raises(BadInputError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        f"5 problems in {path}:\n"
        f"{path}:4:3: data.spann: unknown key\n"
        "    Did you mean `spans`? Allowed: examples, spans, split, complete, prepare, "
        "query, csv, null_values, missing, unlabelled, on_bad_row, "
        "max_bad_fraction, extra_columns, step_lengths.\n"
        f'{path}:8:15: trainer.batch_size: received "many" (text)\n'
        "    Allowed: a whole number, at least 1.\n"
        f'{path}:9:28: trainer.distribution.strategy: received "mirored" '
        "(text)\n"
        "    Did you mean `mirrored`? Allowed: auto, one_device, mirrored, "
        "multi_worker_mirrored, parameter_server, tpu or central_storage.\n"
        f"{path}:11:18: evaluator.metrics.1: `rmse` is not defined for the task "
        "binary\n"
        "    It is for reconstruction or regression; the task is set by "
        "`evaluator.task`. Allowed: auc, pr_auc, accuracy, precision, recall, "
        "log_loss, calibration, mean_label, mean_prediction, f1, ndcg, mrr.\n"
        f'{path}:12:11: evaluator.slices: received "carrier" (text)\n'
        "    Write `[carrier]`. Allowed: a list of features, "
        "`{feature: NAME, bins: [EDGE, …]}`, or lists of these."
    )


def test_a_missing_key_points_at_its_section(write):
    text = FIVE_MISTAKES.split("trainer:")[0].replace("  spann: all\n", "")
    path = write("pipeline.yaml", text + "trainer: {epochs: 3}\n")
    (problem,) = problems(path)
    assert (problem.key, str(problem.place)) == ("trainer.module", f"{path}:5:10")
    assert "Add `module:` under `trainer`." in str(problem)


def test_all_missing_keys_are_named(write):
    found = problems(write("pipeline.yaml", "name: x\n"))
    assert [p.key for p in found] == ["label", "data", "transform", "trainer"]


def test_a_misspelt_required_key_is_one_problem(write, workload):
    path = write("p.yaml", workload.read_text().replace("label:", "lable:"))
    (problem,) = problems(path)
    assert "lable: unknown key\n    Did you mean `label`?" in str(problem)


def test_a_key_in_the_wrong_section_is_sent_to_the_right_one(workload):
    (problem,) = problems(workload, sets=["batch_size=4"])
    assert "Did you mean `trainer.batch_size`?" in str(problem)


def test_duplicate_keys_are_named_beside_other_problems(write, workload):
    text = workload.read_text() + "label: other\npusher: {to: x, keep: 0, keep: 1}\n"
    path = write("p.yaml", text)
    lines = len(workload.read_text().splitlines())
    found = [str(problem).split("\n")[0] for problem in problems(path)]
    assert found == [
        f"{path}:{lines + 1}:1: duplicate key `label`",
        f"{path}:{lines + 2}:1: duplicate key `pusher`",
    ]


def test_the_first_place_of_a_duplicate_is_reported(write, workload):
    text = workload.read_text().replace("{to: serving}", "{to: a, keep: 2, keep: 3}")
    path = write("p.yaml", text)
    (problem,) = problems(path)
    line = len(text.splitlines())
    assert str(problem.place) == f"{path}:{line}:26"
    assert f"first given at {path}:{line}:17" in str(problem)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("label: [late\nname: x\n", ":2:5", "is not valid YAML"),
        ("label: late\n\tname: x\n", ":2:1", "is not valid YAML: a tab"),
        ("data:\n  split:\n  \tby: x\n", ":3:3", "is not valid YAML: a tab"),
        ("label: a: b\n", ":1:9", "mapping values are not allowed"),
        ("label: 'late\n", ":2:1", "is not valid YAML"),
        ("a: 1\n---\nb: 2\n", ":2:1", "is not valid YAML"),
        ("x: ä\nlabel: lä\x07te\n", ":2:10", "character #x07"),
        ("", "", "the file is empty"),
        ("# nothing\n", "", "the file is empty"),
        ("- a\n", "", "is not a mapping"),
        ("base: &b {x: 1}\nlabel: {<<: *b}\n", ":2:9", "merge keys"),
        ("label: !!python/name:os.system x\n", ":1:8", "is not supported"),
        ("label: &a [*a]\n", ":1:8", "contains itself"),
        ("? [a, b]\n: 1\n", ":1:3", "not a name"),
        (f"label: {'[' * 3000}{']' * 3000}\n", ":1:1", "nested too deeply"),
        (f"label: {'9' * 5000}\n", ":1:8", "too many digits"),
    ],
)
def test_broken_yaml_is_named_with_line_and_column(write, text, place, expected):
    path = write("pipeline.yaml", text)
    found = [str(problem) for problem in problems(path)]
    assert any(p.startswith(f"{path}{place}: ") and expected in p for p in found)


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"label: \xff\n")
    assert "is not UTF-8 text (byte 7)" in str(problems(path)[0])


def test_a_missing_file_names_those_nearby(workload):
    (problem,) = problems(workload.parent / "pipline.yaml")
    assert "cannot be read: No such file" in str(problem)
    assert f"YAML files in {workload.parent}: {workload}." in str(problem)


def test_a_folder_in_place_of_a_file_names_the_yaml_in_it(workload):
    (problem,) = problems(workload.parent)
    assert "cannot be read: is a folder" in str(problem)
    assert str(workload) in str(problem)


@pytest.mark.parametrize(
    "url", ["mysql://me:pa/ss@wo@host:3306/db", "postgresql://host/db?password=pa/ss"]
)
def test_a_password_in_a_setting_is_rejected_and_not_repeated(write, workload, url):
    path = write("p.yaml", f'{workload.read_text()}run: {{metadata: "{url}"}}\n')
    for found in (problems(path), problems(workload, sets=[f"run.metadata={url}"])):
        text = "\n".join(map(str, found))
        assert "STRATEGOS_METADATA_PASSWORD" in text
        assert "pa/ss" not in text


def test_masked_passwords_stay_masked_in_other_errors(workload):
    (problem,) = problems(workload, sets=["run.metadat=mysql://me:secret@host/db"])
    assert "secret" not in str(problem)
    assert "****" in str(problem)


@pytest.mark.parametrize("text", ["trainer.epochs", "=3", "trainer..epochs=3"])
def test_a_malformed_set_is_rejected(workload, text):
    (problem,) = problems(workload, sets=[text])
    assert str(problem).startswith(f"--set {text}: is not KEY=VALUE")


def test_broken_yaml_in_a_set_names_the_flag(workload):
    (problem,) = problems(workload, sets=["evaluator.slices=[a"])
    assert str(problem).startswith("--set evaluator.slices=[a: is not valid YAML")


@pytest.mark.parametrize("value", ["*/2 * * * *", "@daily", "%x", ">=3", "`x`"])
def test_text_that_begins_with_a_sign_of_yaml_is_to_be_quoted(write, workload, value):
    plain = write("n.yaml", f"cron: {value}\n")
    sets = [f"schedule.cron={value}"]
    for (problem,) in (problems(workload, sets=sets), problems(plain)):
        assert f"{value[0]} is a sign of YAML: quote the value" in str(problem)
    quoted = load(workload, (), ["schedule.cron='*/2 * * * *'"])
    assert quoted.config.schedule.cron == "*/2 * * * *"


def test_problems_of_all_layers_come_together_in_reading_order(write, workload):
    main = write("m.yaml", workload.read_text().replace("512", "0"))
    overlay = write("prod.yaml", "pusher:\n  keep: none\n")
    found = problems(main, overlays=[overlay], sets=["trainer.epochs=x"])
    places = [str(problem.place) for problem in found]
    assert places == [f"{main}:9:15", f"{overlay}:2:9", "--set trainer.epochs=x"]


@pytest.mark.parametrize(
    "text", ["import os\n\nname = 'x'\n", "def f():\n    return 1\n"]
)
def test_python_in_place_of_yaml_is_named(write, text):
    with pytest.raises(ConfigError, match="is Python, not YAML"):
        load(write("pipeline.yaml", text))


def test_a_bound_of_another_name_is_understood(workload):
    sets = ["evaluator.bounds={auc: {min: 0.7}}"]
    (problem,) = problems(workload, sets=sets)
    assert problem.key == "evaluator.bounds.auc.min"
    assert "Did you mean `at_least`?" in str(problem)

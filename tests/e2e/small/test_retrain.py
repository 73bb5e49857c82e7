"""`strategos retrain`, by the command: what it decides on is what is run."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess

import pytest

from strategos.pipeline.root import lock

_DATA = """\
import shutil


def prepare(folder):
    shutil.copytree(f"{folder}/later", f"{folder}/data")
"""


@pytest.fixture(scope="module")
def small(make_small, tmp_path_factory):
    """The small workload whose data are made by `data.prepare` when missing."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    yaml = made.yaml.read_text()
    yaml = yaml.replace("data: {", "data: {prepare: data, ")
    yaml += "gates: {drift: {at_most: 0.1}}\n"
    made.yaml.write_text(yaml + "notify: {command: [sh, -c, cat > told.json]}\n")
    (made.folder / "data.py").write_text(_DATA)
    shutil.move(made.folder / "data", made.folder / "later")
    return made


@pytest.fixture(scope="module")
def first(small):
    """What the first run prints, which all tests after it build on."""
    return retrain(small, "--if-due").stdout


def later(test):
    """Marks a test after the first run, which `make test` leaves out."""
    return pytest.mark.long(pytest.mark.usefixtures("first")(test))


def retrain(workspace, *arguments, expect=0):
    return workspace.strategos(
        "retrain", str(workspace.yaml), *arguments, expect=expect
    )


def spans(workspace):
    """The spans that the last run read, as ML Metadata has them."""
    run_id = workspace.last_run()["run_id"]
    shown = workspace.strategos("lineage", run_id, str(workspace.yaml), "--json")
    steps = json.loads(shown.stdout)["steps"]
    (step,) = (step for step in steps if step["node"] == "ExampleGen")
    return [number for number, _ in step["parameters"]["spans"]]


def test_nothing_is_made_while_a_run_is_on(small):
    busy = "run another has been running since"
    with lock.hold(small.folder / "runs", run_id="another"):
        waits = retrain(small, "--if-due").stdout
        assert waits.startswith("Not due: ")
        assert busy in waits
        assert busy in retrain(small, expect=2).stderr
    assert not (small.folder / "data").exists()


def test_a_dry_run_makes_nothing(small):
    done = retrain(small, "--dry-run")
    assert done.stdout == "Due: no data exist yet; `data.prepare` makes them.\n"
    assert not (small.folder / "data").exists()
    assert not (small.folder / "runs" / "metadata.sqlite").exists()


def test_what_is_due_is_run_and_then_it_is_not_due(small, first):
    reason = "Due: no model has been pushed yet (2 spans to learn from)."
    assert first.startswith(reason)
    assert "✓ small  blessed" in first
    assert spans(small) == [1, 2]
    assert small.last_run()["reason"] == reason
    (version,) = small.serving()
    told = json.loads((small.folder / "told.json").read_text())
    assert (told["outcome"], told["reason"]) == ("blessed", reason)
    assert told["pushed"] == str(small.folder / "serving" / "small" / version)
    again = retrain(small, "--if-due").stdout
    assert again.startswith(f"Not due: model {version}, pushed ")
    assert small.serving() == [version]
    shown = small.strategos("runs", str(small.yaml)).stdout
    assert "why " not in shown
    assert "decided" in shown
    assert "Not due: model " in shown
    words = ("explain", "retrain", str(small.yaml), "--json")
    decided = json.loads(small.strategos(*words).stdout)
    assert [(x["due"], x["outcome"]) for x in decided] == [
        *((False, None), (True, "blessed")),
    ]
    assert decided[1]["run_id"] == small.last_run()["run_id"]
    serving = small.folder / "serving"
    lost = serving.rename(small.folder / "lost")
    reason = "Due: no model is in production (2 spans to learn from)."
    assert retrain(small, "--dry-run").stdout == f"{reason}\n"
    lost.rename(serving)


@later
def test_bad_spans_are_stopped_and_left_out_from_then_on(small):
    rows = [line.split(",") for line in _read(small, 2)]
    bad = {
        11: ["x,late", *(f"{x},{late}" for x, late in rows[: len(rows) // 2])],
        12: ["km,late", *(f"{x},{late}" for x, late in rows)],
        13: ["x,late", *(f"{1.6 * float(x)},{late}" for x, late in rows)],
        14: ["x,late", *(f",{late}" for _, late in rows)],
        15: ["x,late", *(f"{x},1" for x, _ in rows)],
    }
    for span, lines in bad.items():
        file = small.folder / "data" / f"span-{span}" / "rows.csv"
        file.parent.mkdir()
        file.write_text("\n".join(lines) + "\n")
    before = small.serving()
    stopped = retrain(small, "--if-due", expect=3).stdout
    for line in (
        "rows, span 11: 0.5 received, at least 0.6 required (100 rows; 200 are usual)",
        "schema, span 12: ",
        "drift, span 13: `x`: ",
        "missing, span 14: `x`: 1 received, a rise of at most 0.2 allowed",
        "drift, span 15: `late`: ",
    ):
        assert line in stopped
    assert small.serving() == before
    assert set(small.states()) <= {"ImportSchemaGen", "SpanValidator", "SpanGate"}
    waits = retrain(small, "--if-due").stdout
    assert waits.startswith("Not due: ")
    assert "left out, because a gate found it at fault: span 11 (run 2" in waits
    decided = json.loads(retrain(small, "--dry-run", "--json").stdout)
    assert decided["left_out"] == list(bad)


def _read(workspace, span):
    file = workspace.folder / "data" / f"span-{span}" / "rows.csv"
    return file.read_text().splitlines()[1:]


@later
def test_a_fall_of_the_metrics_on_a_new_span_makes_a_run_due(small, write_span):
    file = write_span(small.folder, 10)
    quiet = "schedule={new_spans: never, metrics: {auc: {at_least: 0.99}}}"
    words = ("--dry-run", "--json", "--set", quiet)
    decision = json.loads(retrain(small, *words).stdout)
    shutil.rmtree(file.parent)
    assert decision["trigger"] == "metrics"
    start = "Due: auc of the model in production on span 10 is 0."
    assert decision["reason"].startswith(start)
    wrong = retrain(small, *words[:3], quiet.replace("auc", "loss"), expect=2).stderr
    assert "schedule: `metrics` names `loss`, which is not in `evaluator" in wrong


@later
def test_data_that_arrive_after_the_decision_are_left_for_the_next_run(
    small, write_span
):
    write_span(small.folder, 3)
    process = subprocess.Popen(
        [*small.warm.cli(), "retrain", str(small.yaml), "--if-due"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=small.environment(),
    )
    reason = process.stdout.readline()
    write_span(small.folder, 4)
    process.communicate(timeout=500)
    assert process.returncode == 0
    assert reason.startswith("Due: span 3 came after run ")
    assert spans(small) == [1, 2, 3]
    later = retrain(small, "--dry-run").stdout
    assert "Due: span 4 came after model" in later
    assert "found it at fault: span 11 (run 2" in later
    for bad in (small.folder / "data").glob("span-1?"):
        shutil.rmtree(bad)


@later
def test_a_model_that_is_too_old_is_trained_anew(small):
    old = ("--set", "schedule.max_age=1s", "--set", "data.spans=1..3")
    before = small.serving()
    due = "is older than `schedule.max_age`"
    small.wait_for(lambda: due in retrain(small, "--dry-run", *old).stdout, seconds=60)
    assert due in retrain(small, "--if-due", *old).stdout
    assert set(small.states().values()) == {"complete"}
    assert spans(small) == [1, 2, 3]
    assert len(small.serving()) == len(before) + 1


@later
def test_a_past_span_is_run_as_if_later_ones_had_not_arrived(small):
    strict = ("--set", "evaluator.bounds.auc={at_least: 1.0}")
    planned = retrain(small, "--dry-run", "--spans", "2..3").stdout.splitlines()
    assert planned == ["Backfill: as of span 2.", "Backfill: as of span 3."]
    before = small.serving()
    broken = ("--set", "notify={command: [sh, -c, echo no mail; exit 7]}")
    stopped = retrain(small, "--spans", "1..2", *strict, *broken, expect=3).stderr
    assert "notify.command: sh ended with exit code 7\n    no mail" in stopped
    assert spans(small) == [1, 2]
    listed = small.strategos("runs", str(small.yaml), "--json", "--limit", "2")
    assert [run["reason"] for run in json.loads(listed.stdout)] == [
        "Backfill: as of span 2.",
        "Backfill: as of span 1.",
    ]
    assert small.serving() == before
    wrong = retrain(small, "--spans", "8..9", expect=2).stderr
    assert "--spans: no span is in '8..9'; there are: 1, 2, 3, 4" in wrong


@later
def test_a_rejected_candidate_waits_for_new_data_or_a_change(small):
    strict = ("--set", "evaluator.bounds.auc={at_least: 1.0}", "--set")
    strict += ("data.spans=1..2",)
    rejected = small.last_run()["run_id"]
    waits = f"Not due: run {rejected} was not blessed on the same data"
    assert waits in retrain(small, "--if-due", *strict).stdout
    decision = json.loads(retrain(small, "--dry-run", "--json").stdout)
    assert (decision["due"], decision["new"]) == (True, [[3, None], [4, None]])
    assert f"came after run {rejected}, which was not blessed" in decision["reason"]


_QUIET = ("--set", "data.spans=1..2", "--set", "schedule.cron=0 0 1 1 *")


@later
def test_a_dozen_checks_write_nothing_but_the_decision(small, tmp_path):
    before = _files(small.folder)
    for _ in range(10):
        assert retrain(small, "--if-due", *_QUIET).stdout.startswith("Not due: ")
    _assert_a_clock_checks_until_it_is_ended(small, tmp_path / "log")
    after = _files(small.folder)
    state = small.folder / "runs" / ".strategos"
    for files in (before, after):
        del files[state / "lock"]
    decisions = [
        file.pop(state / "decisions.jsonl").splitlines() for file in (before, after)
    ]
    assert len(decisions[1]) >= len(decisions[0]) + 12
    assert after == before


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _assert_a_clock_checks_until_it_is_ended(small, log):
    words = ("schedule", "start", str(small.yaml), "--every", "1s", *_QUIET)
    with log.open("w") as file:
        clock = subprocess.Popen(
            small.command(*words), stdout=file, stderr=file, env=small.environment()
        )
    small.wait_for(lambda: log.read_text().count("Not due: ") > 1, seconds=100)
    clock.terminate()
    assert clock.wait(timeout=60) == 0
    year = datetime.datetime.now(datetime.timezone.utc).year + 1
    assert f"; due by the clock at {year}-01-01 " in log.read_text()


@later
def test_what_cron_is_given_checks_once(small):
    words = ("export", str(small.yaml), "--to", "cron", *_QUIET)
    fields, command = small.strategos("schedule", *words).stdout.split("  ", 1)
    assert fields == "*/1 * * * *"
    subprocess.run(["sh", "-c", command], cwd="/", env=small.environment(), check=True)
    assert (small.folder / "retrain.log").read_text().startswith("Not due: model ")


@later
def test_the_model_before_the_live_one_can_be_live_again(small):
    *_, wanted, live = map(int, small.serving())
    done = small.strategos("rollback", str(small.yaml))
    assert "[probe]" not in done.stdout + done.stderr
    pushed = int(small.serving()[-1])
    assert done.stdout == f"version {pushed} is live: a copy of {wanted}\n"
    listed = json.loads(small.strategos("models", str(small.yaml), "--json").stdout)
    assert [each["version"] for each in listed if each["live"]] == [pushed]
    (copy,) = (each for each in listed if each["rollback_of"])
    assert (copy["version"], copy["rollback_of"]) == (pushed, wanted)
    (original,) = (each for each in listed if each["version"] == wanted)
    about = ("run_id", "spans", "metrics", "strategy", "fingerprint", "signatures")
    assert all(copy[name] == original[name] for name in about)
    assert copy["metrics"] and copy["spans"] and copy["strategy"] == "one_device"
    shown = small.strategos("models", str(small.yaml)).stdout
    assert f"rolled back to {wanted}" in shown
    assert str(live) in shown
    lineage = small.strategos("lineage", str(pushed), str(small.yaml)).stdout
    assert "Trainer" in lineage


@later
def test_what_clean_leaves_is_enough_for_a_cached_run_and_a_rollback(small):
    small.run()
    options = (str(small.yaml), "--keep", "1", "--older-than", "1s")
    listed = small.strategos("clean", *options).stdout
    assert "--delete removes them" in listed and "Model " in listed
    models = small.folder / "runs" / "small" / "Trainer" / "model"
    before = set(models.iterdir())
    assert "removed " in small.strategos("clean", *options, "--delete").stdout
    assert 0 < len(set(models.iterdir())) < len(before)
    small.run()
    assert set(small.states().values()) == {"cached"}
    assert "is live" in small.strategos("rollback", str(small.yaml)).stdout


@later
def test_a_canary_is_live_once_the_next_span_has_judged_it(small, write_span):
    words = ("--set", "pusher.canary=trial", "--set", "data.spans=1..4")
    words += ("--set", "trainer.seed=9")
    before = small.serving()
    slot = small.folder / "trial"
    pushed = small.run(*words).stdout
    (version,) = (path.name for path in slot.glob("[0-9]*"))
    assert f"trial/{version}" in pushed.partition("  canary ")[2]
    assert small.serving() == before
    write_span(small.folder, 5)
    waits = retrain(small, "--if-due", *words).stdout
    assert waits.startswith(f"Not due: canary {version}, pushed ")
    promote = ("canary", "promote", str(small.yaml), *words)
    strict = ("--set", "evaluator.bounds.auc={at_least: 1.0}")
    stopped = small.strategos(*promote, *strict, expect=3).stderr
    assert "span 5: auc, overall: at least 1 required, 0." in stopped
    assert small.serving() == before
    model = (slot / version / "variables" / "variables.index").read_bytes()
    promoted = small.strategos(*promote).stdout
    live = small.serving()[-1]
    assert promoted.startswith(
        f"version {live} is live: canary {version} (on span 5, bounds held: 2"
    )
    served = small.folder / "serving" / "small" / live / "variables" / "variables.index"
    assert served.read_bytes() == model
    assert not list(slot.rglob("*.*"))


@later
def test_an_aborted_canary_is_not_tried_again(small):
    words = ("--set", "pusher.canary=trial", "--set", "data.spans=1..4")
    words += ("--set", "trainer.seed=10")
    before = small.serving()
    slot = small.folder / "trial"
    small.run(*words)
    rejected = small.last_run()["run_id"]
    (version,) = (path.name for path in slot.glob("[0-9]*"))
    done = small.strategos("canary", "abort", str(small.yaml), *words).stdout
    assert done.startswith(f"canary {version} is withdrawn")
    assert not list(slot.rglob("*.*"))
    waits = retrain(small, "--if-due", *words).stdout
    assert waits.startswith(f"Not due: run {rejected} was not blessed on the same data")
    assert "was a canary that was aborted" in small.run(*words).stderr
    assert not list(slot.rglob("*.*")) and small.serving() == before


@later
def test_a_model_is_live_once_a_person_has_approved_it(small):
    words = ("--set", "pusher.canary=trial", "--set", "pusher.approval=true")
    words += ("--set", "data.spans=1..4", "--set", "trainer.seed=11")
    before = small.serving()
    done = small.run(*words, expect=3).stdout
    (version,) = (path.name for path in (small.folder / "trial").glob("[0-9]*"))
    assert f"trial/{version}" in done.partition("  approval ")[2]
    assert f"strategos models approve|veto {version}" in done
    assert small.run(*words, expect=3).returncode == 3  # it still waits
    waits = retrain(small, "--if-due", *words).stdout
    assert waits.startswith(f"Not due: version {version}, pushed ")
    assert (
        "set, so a person decides"
        in small.strategos(
            "canary", "promote", str(small.yaml), *words, expect=2
        ).stderr
    )
    decide = ("models", "approve", version, str(small.yaml), *words)
    done = small.strategos(*decide, "--by", "ada", "--reason", "looks fine").stdout
    live = small.serving()[-1]
    assert done == f"version {live} is live: {version}, approved by ada\n"
    assert live not in before
    listed = small.strategos("models", str(small.yaml), *words, "--json").stdout
    newest = json.loads(listed)[0]
    assert (newest["decided_by"], newest["decided_because"]) == ("ada", "looks fine")
    assert small.run(*words).returncode == 0  # nothing waits any more


@later
def test_server_that_is_away_is_no_reason_to_train(small):
    away = ("--set", "run.metadata=mysql://me@127.0.0.1:1/mlmd")
    done = retrain(small, "--dry-run", *away, expect=None)
    assert done.returncode != 0
    assert "Due" not in done.stdout
    assert "127.0.0.1:1" in done.stderr

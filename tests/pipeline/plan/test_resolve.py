"""The first step of a compiled pipeline, as it runs in a container."""

from __future__ import annotations

import json
import sqlite3

import pytest

from strategos.components.data_files.queries import snapshots
from strategos.components.errors import BadInputError
from strategos.pipeline.config import loading
from strategos.pipeline.plan import planning
from strategos.pipeline.plan.cluster import resolve

RUN = {
    **{"spans": "all", "baseline": "production", "warm_start": "none"},
    **{"batch_size": 512.0, "epochs": 5, "seed": 0, "hyperparameters": "{}"},
    "distribution": '{"strategy": "auto"}',
}


@pytest.fixture
def question(workload, tmp_path):
    to = f"pusher.to={tmp_path / 'serving'}"
    return resolve.ResolveRequest.of(loading.load(workload, (), [to]).config, "code")


def answered(question, parameters):
    return resolve.answer(question, parameters, resolve.listing(question, parameters))


def test_spans_and_their_content_are_those_of_a_run_here(workload, question):
    for which in ("all", "latest", "1..2", "2"):
        config = loading.load(workload, (), [f"data.spans={which}"]).config
        here = planning.parameters(config, config.data.listing())
        there = answered(question, {**RUN, "spans": which})
        for name in ("spans", "data_fingerprint"):
            assert there[name] == here[name]


def test_files_to_predict_are_those_of_a_run_here(workload):
    new = workload.parent / "new"
    new.mkdir()
    for span in (3, 4):
        (new / f"{span}.csv").write_text(f"tail,carrier\nN{span},UA\n")
    section = {"data": "new/{SPAN}.csv", "to": "scored"}

    def both(**more):
        sets = [f"predict={json.dumps(section | more)}"]
        config = loading.load(workload, (), sets).config
        here = planning.parameters(config, config.data.listing())["predicted_spans"]
        asked = resolve.ResolveRequest.of(config, "code")
        there = answered(resolve.ResolveRequest(**vars(asked)), RUN)
        assert there["predicted_spans"] == here
        return here, there["candidate"]

    newest, candidate = both()
    assert json.loads(newest)["spans"] == [[4, None]]
    assert json.loads(both(spans="all")[0])["spans"] == [[3, None], [4, None]]
    (new / "4.csv").write_text("tail,carrier\nN4,AA\n")
    changed, same = both()
    assert changed != newest and same == candidate
    config = loading.load(workload, (), ()).config
    alone = planning.parameters(config, config.data.listing())
    assert alone["predicted_spans"] == "none"


def test_only_complete_spans_are_read(workload):
    marked = ["data.complete.marker=data/span-{SPAN}/_SUCCESS"]
    (workload.parent / "data" / "span-1" / "_SUCCESS").touch()
    config = loading.load(workload, (), marked).config
    found = answered(resolve.ResolveRequest.of(config, "code"), RUN)
    assert json.loads(found["spans"]) == [[1, None]]


def test_baseline_is_the_newest_version_that_serves(question, tmp_path):
    def baseline(**given):
        return answered(question, {**RUN, **given})["baseline"]

    assert baseline() == "none"
    for version in (9, 10, 11):
        (tmp_path / "serving" / str(version)).mkdir(parents=True)
    for version in (9, 10):
        (tmp_path / "serving" / str(version) / "saved_model.pb").touch()
    assert baseline() == str(tmp_path / "serving" / "10")
    assert baseline(baseline="none") == "none"
    assert baseline(baseline="/mnt/other/3") == "/mnt/other/3"


def test_unchanged_candidate_keeps_the_baseline_that_it_was_compared_with(
    question, tmp_path
):
    version = tmp_path / "serving" / "10"
    (version / "assets.extra").mkdir(parents=True)
    (version / "saved_model.pb").touch()
    first = answered(question, RUN)
    assert first["baseline"] == str(version)
    pushed = {"fingerprint": first["candidate"], "baseline": "none"}
    (version / "assets.extra" / "manifest.json").write_text(json.dumps(pushed))
    assert answered(question, RUN) == {**first, "baseline": "none"}
    assert answered(question, {**RUN, "epochs": 6})["baseline"] == str(version)


def push(serving, version, **about):
    """A version as a compiled pipeline pushes it."""
    folder = serving / str(version) / "assets.extra"
    folder.mkdir(parents=True)
    (folder.parent / "saved_model.pb").touch()
    (folder / "manifest.json").write_text(json.dumps(about))
    return f"{folder}/weights"


def test_a_run_does_not_push_over_another_root_unless_it_takes_that_over(
    workload, tmp_path
):
    config = loading.load(workload, (), [f"pusher.to={tmp_path / 'serving'}"]).config
    question = resolve.ResolveRequest.of(config, "code")
    place = "vm:/runs"
    push(tmp_path / "serving", 10, pushed_by={"root": question.root, "place": "x"})
    answered(question, RUN)
    push(tmp_path / "serving", 11, pushed_by={"root": "5f", "place": place})
    with pytest.raises(BadInputError, match=f"another root, {place}"):
        answered(question, RUN)
    answered(resolve.ResolveRequest.of(config, "code", place), RUN)


def test_gates_judge_the_spans_that_the_model_in_production_has_not_seen(
    workload, write, tmp_path
):
    for span in (3, 4):
        write(f"data/span-{span}/a.csv", f"late,tail,carrier\n1,N{span},UA\n")
    sets = ["gates={missing: 0.1}", f"pusher.to={tmp_path / 'serving'}"]
    config = loading.load(workload, (), sets).config
    question = resolve.ResolveRequest.of(config, "code")
    first = answered(question, RUN)
    here = planning.parameters(config, config.data.listing())
    assert first["compared_spans"] == here["compared_spans"]  # the newest one

    push(tmp_path / "serving", 10, spans=[[1, None], [2, None]])
    here = planning.parameters(config, config.data.listing(), {3, 4})
    again = answered(question, RUN)
    assert again["compared_spans"] == here["compared_spans"]
    assert [each[0] for each in json.loads(again["compared_spans"])["judged"]] == [3, 4]
    assert again["candidate"] == first["candidate"]
    plain = loading.load(workload, (), sets[1:]).config
    found = answered(resolve.ResolveRequest.of(plain, "code"), RUN)
    assert found["compared_spans"] == "none"


def test_training_starts_from_the_weights_in_the_newest_version(workload, tmp_path):
    serving = tmp_path / "serving"
    sets = [f"pusher.to={serving}", "trainer.warm_start=latest"]
    latest = {**RUN, "warm_start": "latest"}

    def answer(*more, **given):
        config = loading.load(workload, (), [*sets, *more]).config
        question = resolve.ResolveRequest.of(config, "code")
        return answered(question, {**latest, **given})

    first = answer()
    assert first["warm_start"] == "none"  # nothing is pushed yet
    push(serving, 10, fingerprint="other")
    assert answer()["warm_start"] == "none"  # pushed without weights
    weights = push(serving, 11, fingerprint="other", warm_start="none", generation=2)
    assert answer()["warm_start"] == weights
    assert answer("trainer.fresh_every=3")["warm_start"] == weights
    assert answer("trainer.fresh_every=2")["warm_start"] == "none"
    assert answer(warm_start="/mnt/model")["warm_start"] == "/mnt/model"
    facts = {"warm_start": weights, "generation": 3}
    newest = push(serving, 12, fingerprint=first["candidate"], **facts)
    assert answer()["warm_start"] == weights  # unchanged, so its steps stay cached
    assert answer(epochs=6)["warm_start"] == newest
    assert answer("run.cache=false")["warm_start"] == newest


@pytest.mark.parametrize("taken", ["spans: 2", "spans: 1, validation: 1"])
def test_a_window_that_leaves_no_span_for_training_is_rejected(workload, taken):
    split = f"data.split={{by: span, {taken}, keys: []}}"
    config = loading.load(workload, (), [split]).config
    with pytest.raises(BadInputError) as raised:
        answered(resolve.ResolveRequest.of(config, "code"), RUN)
    assert raised.value.key == "data.split.spans"


def test_candidate_is_another_if_data_code_or_parameters_are(question, workload):
    def candidate(key="code", **given):
        asked = resolve.ResolveRequest(**{**vars(question), "key": key})
        return answered(asked, {**RUN, **given})["candidate"]

    first = candidate()
    assert candidate(batch_size=512, baseline="none") == first
    others = [candidate("other"), candidate(epochs=6), candidate(spans="latest")]
    (workload.parent / "data" / "span-2" / "a.csv").write_text(
        "late,tail,carrier\n0,N1,UA\n"
    )
    assert len({first, *others, candidate()}) == 5


@pytest.mark.parametrize(
    "given, key, expected",
    [
        ({"spans": "newest"}, "data.spans", "`all`, `latest`"),
        ({"spans": "7"}, "data.spans", "there are: 1, 2"),
        (
            {"distribution": '{"strategy": "parameter_server"}'},
            "distribution",
            "no processes in other pods",
        ),
    ],
)
def test_impossible_parameters_are_rejected(question, given, key, expected):
    with pytest.raises(BadInputError) as raised:
        answered(question, {**RUN, **given})
    assert raised.value.key == key
    assert expected in str(raised.value)


def test_step_fails_by_a_message_without_a_traceback(question, capsys, tmp_path):
    call = {
        "inputs": {"parameterValues": {**RUN, "spans": "9"}},
        "outputs": {"parameters": {"spans": {"outputFile": str(tmp_path / "o")}}},
    }
    words = ["--question", json.dumps(vars(question)), "--input", json.dumps(call)]
    assert resolve.main(words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Resolve: data.spans")
    assert not (tmp_path / "o").exists()


def test_step_asks_the_database_for_new_spans_first(question, tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("CREATE TABLE t (span INTEGER, x REAL)")
        database.executemany("INSERT INTO t VALUES (?, 1.5)", [(1,), (2,)])
    examples = str(tmp_path / "rows-{SPAN}.parquet")
    sql = "SELECT x FROM t WHERE span = {SPAN}"
    query = snapshots.Query(f"sqlite:///{tmp_path}/a.db", sql, examples, 1)
    asking = vars(question) | {"pattern": examples, "query": vars(query)}
    call = {
        "inputs": {"parameterValues": RUN},
        "outputs": {"parameters": {"spans": {"outputFile": str(tmp_path / "o")}}},
    }
    words = ["--question", json.dumps(asking), "--input", json.dumps(call)]
    assert resolve.main(words) == 0
    assert json.loads((tmp_path / "o").read_text()) == [[1, None], [2, None]]

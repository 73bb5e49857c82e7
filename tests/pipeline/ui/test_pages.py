"""The pages of `strategos ui`, compared with what the commands print."""

from __future__ import annotations

import html.parser
import json
import os
import sqlite3
import threading
import time
from urllib.parse import parse_qsl, urlsplit

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd
from werkzeug.test import Client

from strategos.pipeline import cli
from strategos.pipeline.history.roots import Place
from strategos.pipeline.history.store import Store
from strategos.pipeline.report import content, record
from strategos.pipeline.root import lock, metadata
from strategos.pipeline.run import record_cleaning
from strategos.pipeline.ui.app import App
from strategos.pipeline.ui.guard import Guard
from strategos.pipeline.ui.index import Index
from strategos.pipeline.ui.source import Source

HERE = "http://127.0.0.1:8420"
HOSTILE = "</script><script>alert(1)</script>\u202egnp.\u202c 🛫 <b>&amp;"


class Reader(html.parser.HTMLParser):
    """The tables, links, sections, and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.links, self.sections, self.text = [], [], [], ""
        self.tags, self._cell = [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True
        elif tag == "a":
            self.links.append(attrs["href"])
        elif tag == "section":
            self.sections.append(attrs["id"])

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        self.text += data
        if self._cell:
            self.tables[-1][-1][-1] += data

    def records(self, table=0):
        """The rows of a table by heading."""
        names, *rows = self.tables[table]
        return [dict(zip(names, row, strict=True)) for row in rows]


class Site:
    """The pages of a root."""

    def __init__(self, root, token=None, host="127.0.0.1"):
        self.root = str(root)
        place = Place(self.root, metadata.connection(self.root), None, "")
        self.source = Source(place)
        self.app = App(self.source, Guard(host, 8420, token))
        self.client = Client(self.app)

    def get(self, path, **options):
        return self.client.get(path, base_url=options.pop("base_url", HERE), **options)

    def read(self, path):
        answer = self.get(path)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return Reader(answer.get_data(as_text=True))


@pytest.fixture(scope="module")
def site(past_runs):
    return Site(past_runs.root)


@pytest.fixture
def printed(capsys, past_runs):
    """What a command prints as JSON about the same root."""

    def printed(*words):
        assert cli.main([*words, "--root", str(past_runs.root), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return printed


def made_of(root, runs, **facts):
    """A root with some runs, the first one the oldest; each an hour after the last."""
    connection = metadata.connection(root)
    store = ml_metadata.MetadataStore(connection)
    kind = store.put_context_type(mlmd.ContextType(name="pipeline_run"))
    contexts = []
    for number in range(runs):
        context = mlmd.Context(type_id=kind, name=f"run-{number}")
        values = context.custom_properties
        values["pipeline"].string_value = "flights"
        values["started"].double_value = 1_795_000_000.0 + 3600 * number
        for name, value in facts.items():
            values[name].string_value = value
        contexts.append(context)
    store.put_contexts(contexts)
    return Site(root)


def test_runs_are_those_of_strategos_runs(site, printed):
    listed, shown = printed("runs"), site.read("/runs").records()
    assert [each["run"] for each in shown] == [each["run_id"] for each in listed]
    for cells, run in zip(shown, listed, strict=True):
        assert cells["outcome"] == run["outcome"]
        for name in ("auc", "accuracy"):
            value = run["metrics"].get(name)
            assert cells[name] == ("\N{EN DASH}" if value is None else f"{value:.4f}")
        assert cells["pushed"] == ((run["pushed"] or ["", ""])[1])
    assert "preprocessing.py" in shown[1]["remark"]


def test_a_filter_leaves_the_runs_of_one_outcome(site, past_runs):
    shown = site.read("/runs?outcome=blessed")
    ids = [past_runs.ids["cached"], past_runs.ids["pushed"]]
    assert [each["run"] for each in shown.records()] == ids
    assert "blessed (2)" in shown.text and "all (5)" in shown.text


def test_a_search_leaves_the_runs_with_all_of_its_words(tmp_path):
    site = made_of(tmp_path, 2, outcome="blessed", reason="retrain: 2 new spans")
    assert [x["run"] for x in site.read("/runs?search=SPANS+run-1").records()] == [
        "run-1"
    ]
    found = site.read("/runs?search=spans&outcome=blessed")
    assert len(found.records()) == 2 and "blessed (2)" in found.text
    assert any("search=spans" in href for href in found.links)  # by outcome
    nothing = site.read("/runs?search=spans+elsewhere&outcome=blessed")
    assert "No such run" in nothing.text and "0 runs" in nothing.text


def test_a_failed_run_is_found_by_its_cause_and_its_words_are_text(tmp_path):
    site = made_of(tmp_path, 1, outcome="failed", failed_node="Trainer", cause=HOSTILE)
    assert len(site.read("/runs?search=trainer").records()) == 1
    answer = site.get("/runs", query_string={"search": f'"{HOSTILE}'})
    page = Reader(answer.get_data(as_text=True))
    assert b"<script>alert" not in answer.data and "b" not in page.tags


def test_a_run_has_the_sections_of_its_report(site, past_runs):
    for run_id in past_runs.ids.values():
        page = site.read(f"/runs/{run_id}")
        made = content.document(record.read(past_runs.open(), run_id))
        assert page.sections == [each.id for each in made.sections]
        assert page.links.count(f"/runs/{run_id}/report.html") == 1
    file = site.get(f"/runs/{run_id}/report.html")
    assert file.status_code == 200 and b"vega" in file.data


def test_two_runs_compared_are_those_of_runs_compare(site, printed, past_runs):
    newest, before = (each["run_id"] for each in printed("runs")[:2])
    (link,) = (x for x in site.read(f"/runs/{newest}").links if "/compare?" in x)
    query = dict(parse_qsl(urlsplit(link).query))
    assert query == {"before": before, "after": newest}
    page, found = site.read(link), printed("runs", "compare", before, newest)
    assert {f"/runs/{before}", f"/runs/{newest}"} <= {*page.links}
    assert page.sections == ["runs", "compared", "changed"]
    assert all(each["name"] in page.text for each in found["settings"])
    (times,) = (each for each in page.tables if each[0][0] == "node")
    assert [row[0] for row in times[1:]] == [each["name"] for each in found["nodes"]]
    assert site.get("/compare?before=none&after=none").status_code == 404
    assert site.get(f"/compare?before={newest}&after={newest}").status_code == 404


def test_lineage_is_that_of_strategos_lineage(site, printed, past_runs):
    traced = printed("lineage", past_runs.ids["pushed"])
    page = site.read(f"/lineage?model={past_runs.ids['pushed']}")
    assert [each["step"] for each in page.records()] == [
        x["node"] for x in traced["steps"]
    ]
    assert "200: 160 train, 40 eval" in page.text and traced["version"] in page.text


def test_models_without_a_yaml_are_those_of_the_last_target(site, past_runs):
    page = site.read("/models")
    assert "no version is in" in page.text.lower()  # this root's folder is empty
    assert past_runs.ids["gated"] in page.text


def test_the_leaderboard_names_each_evaluated_model_once(site, past_runs):
    shown = site.read("/leaderboard?metric=auc").records()
    assert {each["auc"] for each in shown} == {"0.7400"}
    ids = {each["run"] for each in shown}
    assert past_runs.ids["pushed"] in ids and past_runs.ids["cached"] not in ids


def test_pages_of_runs_follow_each_other(tmp_path):
    site = made_of(tmp_path, 60, outcome="finished")
    ids, page = [], "/runs"
    for _ in range(3):
        shown = site.read(page)
        ids += [each["run"] for each in shown.records()]
        page = next((x for x in shown.links if f"page={len(ids) // 25 + 1}" in x), "")
    assert ids == [f"run-{n}" for n in reversed(range(60))]
    assert site.read("/runs?page=99").records()[-1]["run"] == "run-0"
    assert site.read("/runs?page=x").records()[0]["run"] == "run-59"


def test_a_new_run_and_a_new_outcome_are_shown_at_the_next_page(tmp_path):
    site = made_of(tmp_path, 2)
    assert [x["outcome"] for x in site.read("/runs").records()] == ["interrupted"] * 2
    store = ml_metadata.MetadataStore(metadata.connection(tmp_path))
    (first, _) = store.get_contexts_by_type("pipeline_run")
    first.custom_properties["outcome"].string_value = "failed"
    new = mlmd.Context(type_id=first.type_id, name="new")
    new.custom_properties["outcome"].string_value = "finished"
    store.put_contexts([first, new])
    shown = {x["run"]: x["outcome"] for x in site.read("/runs").records()}
    assert shown == {"new": "finished", "run-1": "interrupted", "run-0": "failed"}


def test_runs_without_records_are_no_longer_shown_nor_counted(tmp_path):
    site = made_of(tmp_path, 30, outcome="finished")
    assert "30 runs, page 1 of 2" in site.read("/runs").text
    record_cleaning.remove(str(tmp_path), [f"run-{n}" for n in range(1, 28)])
    page = site.read("/runs")
    assert [x["run"] for x in page.records()] == ["run-29", "run-28", "run-0"]
    assert "3 runs" in page.text and "page=2" not in "".join(page.links)
    assert site.get("/runs/run-1").status_code == 404


def test_an_evaluation_counts_once_its_metrics_are_written(house):
    index = Index()
    index.update(house.store)
    assert [x.metrics["auc"] for x in index.evaluations()] == [0.3, 0.2, 0.1]
    store = house.store.mlmd
    kind = store.get_artifact_type("ModelEvaluation").id
    early = mlmd.Artifact(type_id=kind, uri="x/flights/Evaluator/evaluation/9")
    (early.id,) = store.put_artifacts([early])
    index.update(house.store)
    assert len(index.evaluations()) == 3
    early.custom_properties["auc"].double_value = 0.9
    store.put_artifacts([early])
    index.update(house.store)
    (found,) = index.evaluations("flights")
    assert found.metrics == {"auc": 0.9}
    assert index.run_of(house.store, found) is None  # no execution made it
    best = [index.run_of(house.store, each) for each in index.evaluations()[1:]]
    assert [each.run_id for each in best] == ["run-30", "run-20", "run-10"]


def test_texts_of_the_data_are_shown_as_text(tmp_path):
    site = made_of(tmp_path, 1, outcome="failed", failed_node="Trainer", cause=HOSTILE)
    for path in ("/runs", "/runs/run-0", "/leaderboard?metric=" + HOSTILE[:9]):
        answer = site.get(path)
        page = Reader(answer.get_data(as_text=True))
        assert b"<script>alert" not in answer.data and "b" not in page.tags
    assert HOSTILE in Reader(site.get("/runs/run-0").get_data(as_text=True)).text


def test_an_empty_root_says_so_until_something_runs(tmp_path):
    site = Site(tmp_path)
    for path in ("/runs", "/models", "/leaderboard", "/spans"):
        assert "No runs yet" in site.read(path).text
    assert site.get("/runs/none").status_code == 404
    assert not list(tmp_path.iterdir())
    made_of(tmp_path, 1)
    assert [each["run"] for each in site.read("/runs").records()] == ["run-0"]


def test_nothing_under_the_root_changes(site, past_runs):
    before = _contents(past_runs.root)
    run_id = past_runs.ids["pushed"]
    for path in (
        "runs",
        "models",
        "leaderboard",
        "schedule",
        "spans",
        f"runs/{run_id}",
    ):
        site.read(f"/{path}")
    site.get(f"/runs/{run_id}/report.html")
    assert _contents(past_runs.root) == before


def _contents(root):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(root.rglob("*"))
    }


def test_a_page_waits_for_a_run_that_writes(tmp_path):
    site = made_of(tmp_path, 1)
    site.read("/runs")
    path = str(tmp_path / "metadata.sqlite")
    writer = sqlite3.connect(path, check_same_thread=False)
    writer.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.5, writer.rollback)
    timer.start()
    assert site.read("/runs").records()
    timer.join()
    writer.close()


def test_a_run_in_progress_shows_its_nodes_and_its_curves(tmp_path):
    site = made_of(tmp_path, 1)
    folder = tmp_path / ".strategos" / "runs" / "run-0"
    folder.mkdir(parents=True)
    events = [
        {"event": "run_started", "run_id": "run-0", "nodes": ["ExampleGen", "Trainer"]},
        {"event": "node_finished", "node": "ExampleGen", "seconds": 2.5},
        {"event": "node_started", "node": "Trainer"},
        *({"event": "epoch", "node": "Trainer", **each} for each in EPOCHS[:1]),
        {"event": "warning", "node": "Trainer", "message": HOSTILE},
    ]
    _append(folder, events)
    with lock.hold(tmp_path, run_id="run-0"):
        page = site.read("/runs/run-0")
        assert page.sections[:2] == ["now", "verdict"]
        state = site.get("/runs/run-0/now").get_json()
        assert state["going"] and _drawn(state, "loss") == [0.5, 0.6]
        _append(folder, [{"event": "epoch", "node": "Trainer", **EPOCHS[1]}])
        state = site.get("/runs/run-0/now").get_json()
        assert _drawn(state, "loss") == [0.5, 0.4, 0.6, None]
        nodes = Reader(state["html"]).records()
        assert [x["state"] for x in nodes] == ["complete", "running"]
        assert "<script>" not in state["html"]
    assert site.get("/runs/run-0/now").get_json()["going"] is False


EPOCHS = [
    {"epoch": 1, "values": {"loss": 0.5, "val_loss": 0.6}},
    {"epoch": 2, "values": {"loss": 0.4, "val_loss": float("nan")}},
]


def _append(folder, events):
    with (folder / "events.jsonl").open("a") as file:
        for event in events:
            file.write(json.dumps({"time": time.time(), **event}) + "\n")


def _drawn(state, name):
    (spec,) = (x for id, x in state["charts"].items() if id.endswith(f"-{name}"))
    return [row["value"] for row in spec["data"]["values"]]


def test_a_moved_root_is_shown_and_stays_as_it_is(tmp_path):
    log = "/gone/.strategos/runs/run-0/log.txt"
    site = made_of(tmp_path, 1, log=log)
    site.read("/runs/run-0")
    (run,) = Store(metadata.connection(tmp_path), corrects=False).mlmd.get_contexts()
    assert run.custom_properties["log"].string_value == log
    assert not os.path.exists(lock.lock_file(tmp_path))

"""The report that a run leaves: whole or not there, and never the run's failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.files import commit
from strategos.pipeline import cli
from strategos.pipeline.history import runs
from strategos.pipeline.history.store import Store
from strategos.pipeline.report import record, writing

_WRITE = """
import sys
from strategos.pipeline.history.store import Store
from strategos.pipeline.report import writing
from strategos.pipeline.root import metadata
store = Store(metadata.connection(sys.argv[1]), root=sys.argv[1])
print("begun", flush=True)
for _ in range(100):
    writing.write_after(store, sys.argv[2])
"""


@pytest.fixture
def run(past_runs):
    """A run whose report is not there, and its place."""
    store, run_id = past_runs.open(), past_runs.ids["pushed"]
    place = writing.place(past_runs.root, run_id)
    place.unlink(missing_ok=True)
    return store, run_id, place


def _is_whole(place):
    assert not place.exists() or place.read_text().rstrip().endswith("</html>")
    return place.exists()


def test_the_report_is_that_of_strategos_report(run, past_runs, capsys):
    store, run_id, place = run
    writing.write_after(store, run_id)
    after = place.read_text()
    assert capsys.readouterr().err == ""
    assert cli.main(["report", run_id, "--root", str(past_runs.root)]) == 0
    assert capsys.readouterr().out.strip() == str(place)
    assert _without_time(place.read_text()) == _without_time(after)
    assert _is_whole(place)


def test_a_comparison_is_a_file_beside_the_report(run, past_runs, capsys):
    _, run_id, place = run
    other = next(id for id in past_runs.ids.values() if id != run_id)
    words = ["report", run_id, "--root", str(past_runs.root), "--compare"]
    assert cli.main([*words, other]) == 0
    written = place.with_name(f"report-since-{other}.html")
    assert capsys.readouterr().out.strip() == str(written)
    assert f"Compared with run {other}" in written.read_text()
    assert not place.exists()
    written.unlink()
    written.parent.rmdir()
    assert cli.main([*words, run_id]) == 2
    assert f"run {run_id} is compared with itself" in capsys.readouterr().err
    assert cli.main([*words, "nothing"]) == 1
    assert "run nothing: no such run" in capsys.readouterr().err


def test_a_run_stands_beside_the_statistics_of_the_run_before(tmp_path):
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = str(tmp_path / "metadata.sqlite")
    config.sqlite.connection_mode = 3
    store = ml_metadata.MetadataStore(config)
    names = "pipeline_run", "pipeline", "node"
    kinds = {x: store.put_context_type(mlmd.ContextType(name=x)) for x in names}
    artifact_type = mlmd.ArtifactType(name="ExampleStatistics")
    artifact_type_id = store.put_artifact_type(artifact_type)
    output = mlmd.Event(type=mlmd.Event.OUTPUT)

    def run_of(pipeline, run_id, node="StatisticsGen"):
        type_id = store.put_execution_type(mlmd.ExecutionType(name=node))
        execution = mlmd.Execution(type_id=type_id)
        texts = zip(names, (run_id, pipeline, f"{pipeline}.{node}"), strict=True)
        contexts = [mlmd.Context(type_id=kinds[x], name=text) for x, text in texts]
        folder = tmp_path / run_id
        folder.mkdir()
        made = mlmd.Artifact(type_id=artifact_type_id, uri=str(folder))
        store.put_execution(execution, [(made, output)], contexts, True)

    for pipeline, run_id in (("a", "r1"), ("b", "r2"), ("a", "r3")):
        run_of(pipeline, run_id)
    run_of("a", "sliced", "DetailedStatistics")
    run_of("a", "r4")
    (tmp_path / "r3").rmdir()  # as `strategos clean` does
    opened = Store(config)
    found = {x: record.read(opened, x).before for x in ("r1", "r2", "r4")}
    assert found == {
        **{"r1": None, "r2": None},
        "r4": record.Statistics("r1", tmp_path / "r1"),
    }


def test_only_the_newest_reports_are_kept(run, monkeypatch):
    store, run_id, place = run
    others = [place.parents[1] / f"past-{number}" / writing.FILE for number in range(3)]
    for number, other in enumerate(others):
        other.parent.mkdir(parents=True)
        other.write_text("report")
        os.utime(other, (number, number))
    monkeypatch.setattr(writing, "KEPT", 2)
    writing.write_after(store, run_id)
    assert [each.exists() for each in (*others, place)] == [False, False, True, True]
    for other in others:
        commit.remove(other.parent)


def _without_time(text):
    head, _, rest = text.partition("Written ")
    return head + rest[len("2026-01-01 00:00:00") :]


def test_a_folder_that_cannot_be_written_is_one_warning(run, capsys):
    store, run_id, place = run
    before = runs.run(store, run_id)
    if place.parent.exists():
        place.parent.rmdir()
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    place.parent.write_text("in the way")
    writing.write_after(store, run_id)
    said = capsys.readouterr().err
    place.parent.unlink()
    assert "the run has ended, without its report" in said and str(place) in said
    assert f"`strategos report {run_id}` writes it" in said
    assert runs.run(store, run_id) == before


@pytest.fixture
def beside(run):
    """The report beside the version that the run pushed, which is complete."""
    store, run_id, _ = run
    path, version = runs.run(store, run_id).pushed
    os.makedirs(path)
    Path(path, "saved_model.pb").touch()
    yield Path(path).parent / "reports" / f"{version}.html"
    commit.remove(Path(path).parent)


def test_a_report_without_values_stands_beside_the_pushed_version(run, beside, capsys):
    store, run_id, place = run
    writing.write_after(store, run_id)
    redacted = writing.html(record.read(store, run_id), redact=True)
    assert _without_time(beside.read_text()) == _without_time(redacted)
    assert "Values of the data are left out." in beside.read_text()
    assert "Values of the data are left out." not in place.read_text()
    beside.write_text("that of the run which pushed the version")
    writing.write_after(store, run_id)  # as a run that takes the push from the cache
    assert beside.read_text() == "that of the run which pushed the version"
    assert capsys.readouterr().err == ""


def test_no_report_stands_beside_a_version_that_is_gone(run, beside):
    store, run_id, place = run
    commit.remove(beside.parents[1] / beside.stem)
    writing.write_after(store, run_id)
    assert place.exists() and not beside.exists()


def test_a_folder_of_reports_that_cannot_be_written_is_one_warning(run, beside, capsys):
    store, run_id, place = run
    beside.parent.write_text("in the way")
    writing.write_after(store, run_id)
    said = capsys.readouterr().err
    assert place.exists()
    assert f"without the report beside its model: {beside.parents[1]}: " in said
    assert f"`strategos report {run_id} --redact --output FILE` writes it" in said


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.03])
def test_ctrl_c_ends_the_writing_and_leaves_no_half_file(run, seconds, capsys):
    store, run_id, place = run

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        writing.write_after(store, run_id)
        time.sleep(0.05)
    except KeyboardInterrupt:
        pass  # it came after the writing
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if not _is_whole(place):
        assert "without its report: interrupted" in capsys.readouterr().err
    if place.parent.exists():
        assert {each.name for each in place.parent.iterdir()} <= {"report.html"}


@pytest.mark.faults
def test_a_kill_leaves_whole_reports_or_none(run, beside, past_runs):
    _, run_id, place = run
    before = runs.run(past_runs.open(), run_id)
    command = [sys.executable, "-c", _WRITE, str(past_runs.root), run_id]
    whole = 0
    for moment in range(12):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.05 + moment * 0.08)
        process.kill()
        process.communicate()
        whole += _is_whole(place) and _is_whole(beside)
        assert runs.run(past_runs.open(), run_id) == before
    assert whole


@pytest.mark.faults
def test_a_full_disk_is_one_warning_that_names_it(run, capsys):
    store, run_id, place = run
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = str(place.parent)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    try:
        writing.write_after(store, run_id)
        assert list(place.parent.iterdir()) == []
    finally:
        subprocess.run(["umount", folder], check=True)
    said = capsys.readouterr().err
    assert "without its report: no space left in" in said and folder in said
    assert runs.run(store, run_id).outcome == "blessed"


@pytest.mark.faults
def test_a_full_disk_of_pushed_models_is_one_warning(run, beside, capsys):
    store, run_id, place = run
    beside.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(beside.parent)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    try:
        writing.write_after(store, run_id)
        assert place.exists() and list(beside.parent.iterdir()) == []
    finally:
        subprocess.run(["umount", str(beside.parent)], check=True)
    said = capsys.readouterr().err
    assert "without the report beside its model: no space left in" in said

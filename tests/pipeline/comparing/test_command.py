"""Commands that compare runs, given a run that has not ended."""

from __future__ import annotations

import shutil

import ml_metadata
import pytest

from strategos.pipeline import cli
from strategos.pipeline.root import lock, metadata


@pytest.fixture
def root(past_runs, tmp_path):
    """A root whose last run is at its last node."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(past_runs.root / "metadata.sqlite", root)
    store = ml_metadata.MetadataStore(metadata.connection(root))
    killed = past_runs.ids["killed"]
    context = store.get_context_by_type_and_name("pipeline_run", killed)
    execution = store.get_executions_by_context(context.id)[-1]
    execution.last_known_state = execution.RUNNING
    store.put_executions([execution])
    with lock.hold(root, run_id=killed):
        yield root


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce", "{going}"],
        ["runs", "compare", "{other}", "{going}"],
        ["bisect", "{other}", "{going}", "--metric", "auc"],
    ],
)
def test_a_run_that_is_still_going_is_named_with_its_node(
    root, past_runs, capsys, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    going, other = past_runs.ids["killed"], past_runs.ids["pushed"]
    given = [each.format(going=going, other=other) for each in words]
    assert cli.main([*given, "--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert f"strategos: run {going} is still going at BaselineModel\n" in error
    assert f"`strategos runs show {going}` says how far it is" in error
    assert list(tmp_path.iterdir()) == [root]

"""What a run is told before its first node about the model that it starts from."""

from __future__ import annotations

import json

import pytest

from strategos.components import events
from strategos.components.errors import BadInputError
from strategos.components.user_code import workload_paths
from strategos.pipeline.config.loading import load
from strategos.pipeline.plan import graph, planning
from strategos.pipeline.plan.production import Production


@pytest.fixture
def latest(workload):
    return load(workload, sets=["trainer.warm_start=latest"]).config


def test_nothing_to_start_from_is_said(latest, tmp_path):
    sink = tmp_path / "events"
    events.open_sink(str(sink))
    planning._tell_warm_start(latest, None, "none")
    events.open_sink(None)
    (event,) = map(json.loads, sink.read_text().splitlines())
    assert event["event"] == "note"
    assert f"nothing has been pushed to {latest.pusher.to}" in event["message"]


def test_weights_that_are_gone_are_refused_with_the_setting_that_asks(latest, tmp_path):
    pushed = Production(str(tmp_path / "serving" / "2"), 2, "c", "none")
    weights = tmp_path / "model" / "4" / "Format-Weights"
    with pytest.raises(BadInputError) as caught:
        planning._tell_warm_start(latest, pushed, str(weights))
    assert str(caught.value).startswith("--set trainer.warm_start=latest: ")
    assert f"should be in {weights}, which is gone" in str(caught.value)
    weights.mkdir(parents=True)
    planning._tell_warm_start(latest, pushed, str(weights))
    planning._tell_warm_start(latest, pushed, "gs://bucket/model/4/Format-Weights")
    planning._tell_warm_start(latest, pushed, "none")  # what the last push started from


def test_a_version_without_a_record_has_no_weights_to_start_from(latest, workload):
    unknown = Production("/serving/2", 2)
    with pytest.raises(BadInputError, match="no record of /serving/2"):
        planning._report_unknown(latest, unknown)
    planning._report_unknown(load(workload).config, unknown)


def test_a_folder_stands_for_the_weights_in_it(workload):
    for given in ("old/4", "old/4/Format-Weights"):
        config = load(workload, sets=[f"trainer.warm_start={given}"]).config
        expected = str(workload.parent / "old" / "4" / "Format-Weights")
        assert planning.parameters(config)["warm_start"] == expected
    assert planning.parameters(load(workload).config)["warm_start"] == "none"


def test_weights_count_by_what_they_are_and_not_by_where_they_lie(write, workload):
    def parameter(folder):
        config = load(workload, sets=[f"trainer.warm_start={folder}"]).config
        named = planning.parameters(config)["warm_start"]
        found = planning._by_content(named, config)
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

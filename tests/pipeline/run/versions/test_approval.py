"""A person approves or vetoes a model, in a real database; models load elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from strategos.components.errors import BadInputError
from strategos.pipeline.config.operating import Pusher
from strategos.pipeline.history import models
from strategos.pipeline.run.versions import approval, canary
from strategos.pipeline.view import models as view

BY = "ada@build-3"


@pytest.fixture
def waits(house, monkeypatch):
    """The house where version 40 awaits approval, compared with version 30."""
    house.add(40, "canary")
    settings = house.config.pusher.model_dump() | {"approval": True}
    house.config.pusher = Pusher(**settings)
    (artifact,) = (
        each
        for each in house.store.mlmd.get_artifacts_by_type("PushedModel")
        if each.custom_properties["slot"].string_value
    )
    artifact.custom_properties["slot"].string_value = "approval"
    house.store.mlmd.put_artifacts([artifact])
    compare(house, f"{house.to}/30")
    monkeypatch.setattr(canary.pushes.worker_process, "run", lambda *_, **__: {})
    return house


def compare(house, baseline):
    """Records the model that version 40 was compared with."""
    file = Path(house.to, "../canary/40/assets.extra/manifest.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"baseline": baseline}))


def decide(house, how, version=40, because="looked at the slices"):
    decision = approval.Decision(version, BY, because)
    return how(house.config, house.store, decision)


def live(house):
    return models.live(house.store, house.to).version


def test_who_approved_a_version_and_why_is_on_record(waits):
    _, pushed = decide(waits, approval.approve)
    (newest, *_) = models.versions(waits.store, waits.to)
    assert (newest.version, newest.live, newest.promoted_from) == (pushed, True, 40)
    assert (newest.decided_by, newest.decided_because) == (BY, "looked at the slices")
    assert view.promotion(newest) == f"40, approved by {BY}"
    with pytest.raises(BadInputError, match="no version waits in .*/canary"):
        decide(waits, approval.veto)
    assert not list(Path(waits.to, "../canary").iterdir())


def test_a_veto_makes_the_run_not_blessed_and_says_who(waits):
    decide(waits, approval.veto)
    assert live(waits) == 30
    runs = waits.store.mlmd.get_contexts_by_type("pipeline_run")
    (run,) = (each for each in runs if each.name == "run-40")
    facts = run.custom_properties
    assert facts["outcome"].string_value == "not blessed"
    message = json.loads(facts["error"].string_value)["message"]
    assert message == f"{BY} vetoed version 40: looked at the slices"
    assert not list(Path(waits.to, "../canary").iterdir())


def test_a_decision_outlives_a_kill_between_push_and_record(waits, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(canary, "_record_promotion", killed)
        with pytest.raises(Killed):
            decide(waits, approval.approve)
    canary.settle(waits.config, waits.store)
    (newest, *_) = models.versions(waits.store, waits.to)
    assert (newest.promoted_from, newest.decided_by) == (40, BY)


@pytest.mark.parametrize(
    ("baseline", "says"),
    [("20", "was compared with .*/20"), (None, "was compared with no model")],
)
def test_a_version_compared_with_another_than_the_live_one_is_not_approved(
    waits, baseline, says
):
    compare(waits, f"{waits.to}/{baseline}" if baseline else "none")
    if baseline is None:  # the live one came later
        shutil.copytree(f"{waits.to}/30", f"{waits.to}/50")
    with pytest.raises(BadInputError, match=f"{says}, and version .* is live now"):
        decide(waits, approval.approve)
    assert live(waits) == (30 if baseline else 50)
    assert canary.waiting(waits.config, waits.store, "x").version == 40


def test_a_version_of_a_run_without_baseline_is_approved(waits):
    compare(waits, "none")
    assert live(waits) == 30
    decide(waits, approval.approve)
    assert models.live(waits.store, waits.to).promoted_from == 40


@pytest.mark.parametrize("how", [approval.approve, approval.veto])
def test_only_the_version_that_was_looked_at_is_decided_on(waits, how):
    with pytest.raises(BadInputError, match="version 39 does not wait.*version 40 doe"):
        decide(waits, how, version=39)


@pytest.mark.parametrize("how", [approval.approve, approval.veto])
def test_without_the_setting_nobody_is_asked(waits, how, monkeypatch):
    pusher = waits.config.pusher.model_copy(update={"approval": False})
    waits.config.pusher = pusher
    waits.config.problem = lambda key, text, **_: BadInputError(text, key=key)
    with pytest.raises(BadInputError, match="no model waits for a person"):
        decide(waits, how)

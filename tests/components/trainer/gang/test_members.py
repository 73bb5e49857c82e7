"""The decision which workers train, without any process."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from strategos.components.trainer.gang.members import CheckpointCount, Members, recorded

NAMES = ("chief-0", "worker-0", "worker-1")
ALL = Members(NAMES, least=2)


def after(members, *names, progressed=False):
    for name in names:
        members = members.after_failure(name, progressed=progressed)
    return members


def test_a_worker_is_lost_when_it_fails_twice_in_a_row_without_progress():
    assert after(ALL, "worker-0").lost == frozenset()
    assert after(ALL, "worker-0", "worker-0").lost_names == ["worker-0"]
    assert after(ALL, "worker-0", "worker-1", "worker-0").lost == frozenset()
    assert after(ALL, "the gang", "the gang").lost == frozenset()


def test_progress_in_between_keeps_a_worker():
    once = after(ALL, "worker-0")
    assert after(once, "worker-0", "worker-0", progressed=True).lost == frozenset()


def test_a_lost_worker_is_tried_again_after_ever_more_checkpoints_until_it_works():
    members = after(ALL, "worker-0", "worker-0")
    for patience in (1, 2, 4, 8):
        assert members.patience == patience
        members = members.with_back(members.lost_names)
        assert members.lost == frozenset()
        members = after(members, "worker-0")
        assert members.lost_names == ["worker-0"]
    works = after(members.with_back(members.lost_names), "worker-0", progressed=True)
    assert (works.lost, works.patience) == (frozenset(), 1)


def test_a_worker_that_goes_away_again_before_it_has_helped_is_tried_later():
    members = ALL.without(["worker-0"])
    for patience in (1, 2, 4):
        assert members.patience == patience
        members = members.with_back(["worker-0"]).without(["worker-0"])
    assert members.without(["worker-0"]).patience == members.patience


def test_a_gang_never_goes_on_without_a_worker_that_it_needs():
    members = Members(NAMES, 2, needed=frozenset({0}))
    assert after(members, "chief-0", "chief-0", "chief-0").lost == frozenset()
    assert not members.can_lose(["chief-0"]) and members.can_lose(["worker-1"])
    assert not members.without(["worker-1"]).can_lose(["worker-0"])


def test_a_failure_of_unknown_cause_is_that_of_the_worker_that_is_tried():
    tried = after(ALL, "worker-0", "worker-0").with_back(["worker-0"])
    assert after(tried, "chief-0, worker-0, worker-1").lost_names == ["worker-0"]
    assert after(tried, "chief-0").lost == frozenset()


@given(
    st.lists(st.tuples(st.sampled_from([*NAMES, "all"]), st.booleans(), st.booleans())),
    st.integers(1, 3),
)
def test_a_gang_is_never_smaller_than_min_workers(failures, least):
    members = Members(NAMES, least)
    for name, progressed, returns in failures:
        if returns and members.lost:
            members = members.with_back(members.lost_names)
        before, members = members, after(members, name, progressed=progressed)
        assert len(NAMES) - len(members.lost) >= least
        assert not (progressed and members.lost > before.lost)


def test_checkpoints_are_counted_from_outside():
    steps, clock = iter([7, 7, 14, 14, 28]), itertools.count(0, 2)
    seen = CheckpointCount(lambda: next(steps), lambda: next(clock))
    seen.begin()
    found = [(seen.new(), seen.fresh) for _ in range(4)]
    assert found == [(0, False), (1, True), (1, False), (2, True)]
    assert seen.step == 28


def test_the_reason_names_the_sizes_of_a_gang_in_their_order():
    facts = {"reason": "asked for", "workers": 2}
    assert recorded(facts, [3, 3]) == facts
    changed = recorded(facts, [3, 3, 2, 3, 2])["reason"]
    assert changed == "asked for; trained by 3, 2, 3 and 2 workers in turn"

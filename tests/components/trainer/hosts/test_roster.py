"""The decision which tasks of a run take part, without any process."""

from __future__ import annotations

import itertools

import pytest

from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang.restarts import Restarts
from strategos.components.trainer.hosts.roster import Roster
from strategos.components.trainer.operation import Operation

TASKS = [Task("chief"), Task("worker"), Task("worker", 1)]
CLUSTER = ClusterSpec.of(TASKS, ["a:1", "b:1", "c:1"])


class Site:
    """A run of three hosts: their states, and the step of its newest checkpoint."""

    def __init__(self, least=2, **how):
        self.states, self.step = {task.name: "ready" for task in TASKS}, 7
        state, clock = self.states.__getitem__, itertools.count(0, 2).__next__
        operation = Operation(min_workers=least, start_timeout=60.0)
        given = (operation, Restarts(3), state, lambda: self.step)
        self.roster = Roster(*given, clock=clock, **how)
        self.roster.settle(CLUSTER)
        self.roster.begin()

    @property
    def names(self):
        return [task.name for task in self.roster.tasks]


@pytest.fixture
def smaller():
    """Two of three hosts, which go on without the last."""
    site = Site()
    site.states["worker-1"] = ""
    assert site.roster.goes_on_without(["worker-1"], 6.0)
    site.roster.begin()
    assert site.names == ["chief-0", "worker-0"]
    return site


def test_a_host_that_is_away_is_not_waited_for_as_long_as_one_that_starts():
    site = Site()
    assert not site.roster.goes_on_without(["worker-1"], 6.0)  # it sends heartbeats
    site.states["worker-1"] = ""
    assert not site.roster.goes_on_without(["worker-1"], 2.0)
    assert site.roster.goes_on_without(["worker-1"], 4.0)
    assert not site.roster.goes_on_without(["worker-0"], 600.0)  # two are needed


def test_a_host_that_the_run_needs_is_waited_for():
    site = Site(least=1, needed=["chief-0"])
    site.states["chief-0"] = ""
    assert not site.roster.goes_on_without(["chief-0"], 600.0)
    assert site.roster.goes_on_without(["worker-0", "worker-1"], 600.0)


def test_a_host_that_is_back_is_taken_in_right_after_the_next_checkpoint(smaller):
    for smaller.step in (14, 21):
        assert not smaller.roster.takes_in()
    smaller.states["worker-1"] = "joined"  # it imports TensorFlow
    smaller.step = 28
    assert not smaller.roster.takes_in()
    smaller.states["worker-1"] = "arrived"
    # The newest checkpoint is an old one: the others would lose steps.
    assert [smaller.roster.takes_in() for _ in range(3)] == [False] * 3
    smaller.step = 35
    assert smaller.roster.takes_in() and smaller.roster.lost == []

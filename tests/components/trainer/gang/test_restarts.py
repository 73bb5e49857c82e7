"""The decision about a restart, without any process."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.trainer.gang.restarts import RestartPolicy
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.gang.watchdog import AttemptFailedError
from strategos.components.worker_process import WorkerError

FAILURES = st.builds(
    Failure,
    st.just("worker-0"),
    st.just("was killed by SIGKILL"),
    hint=st.sampled_from(["", "Use less memory."]),
    preempted=st.booleans(),
)


@given(st.lists(st.tuples(FAILURES, st.booleans())), st.integers(0, 3))
def test_as_many_failures_as_allowed_are_restarted_and_preemptions_never_count(
    attempts, limit
):
    failures, counted, policy = 0, 0, RestartPolicy(limit)
    for failure, stepped in attempts:
        failed = AttemptFailedError(failure, stepped=stepped)
        decision = policy.decide(failed, failures)
        counts = not (failure.preempted and stepped)
        counted, failures = counted + counts, decision.failures
        assert failures == counted
        assert bool(decision.error) == (counted > limit)
        if decision.error:
            kind = UserError if failure.hint else WorkerError
            assert type(decision.error) is kind
            assert "trainer.distribution.max_restarts" in str(decision.error)
            return
        number = f"{counted} of {limit}" if counts else "not counted"
        assert decision.number == number


@given(st.lists(st.integers(0, 5)), st.integers(0, 3))
def test_only_restarts_in_a_row_without_progress_are_limited(steps, limit):
    furthest, in_a_row, failures, policy = 0, 0, 0, RestartPolicy(limit)
    for step in steps:
        failed = AttemptFailedError(
            Failure("worker-0", "died"), stepped=True, step=step
        )
        decision = policy.decide(failed, failures, furthest=furthest)
        in_a_row = 1 if step > furthest else in_a_row + 1
        assert bool(decision.error) == (in_a_row > limit)
        furthest, failures = max(furthest, step), decision.failures


@pytest.mark.parametrize(("joining", "limit"), itertools.product([False, True], [0, 5]))
def test_an_error_of_the_user_ends_the_training_as_it_is(joining, limit):
    error = UserError("no column `dep_delay`")
    failed = AttemptFailedError(Failure("worker-0", "failed", error), stepped=False)
    decision = RestartPolicy(limit).decide(failed, 0, joining=joining)
    assert (decision.error, decision.failures) == (error, 0)


def test_a_gang_that_joins_again_tries_once_more_after_the_last_restart():
    failed = AttemptFailedError(Failure("worker-0", "is gone"), stepped=False)
    decision = RestartPolicy(2).decide(failed, 2, joining=True)
    assert (decision.error, decision.failures) == (None, 2)
    assert decision.number == "once more"

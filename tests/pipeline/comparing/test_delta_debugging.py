"""The search for causes, beside planted causes of every size and place."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from strategos.pipeline.comparing import delta_debugging


@st.composite
def planted(draw):
    """Groups of changes, and the sets of them that fail."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    numbers = itertools.count()
    groups = [[next(numbers) for _ in range(size)] for size in sizes]
    number = sum(sizes)
    order = draw(st.permutations(range(number)))
    causes, taken = [], 0
    for size in draw(st.lists(st.integers(1, 3), max_size=3)):
        if taken + size <= number:
            causes.append(frozenset(order[taken : taken + size]))
            taken += size
    return groups, set(causes)


@given(planted())
def test_all_planted_causes_are_found_and_nothing_else(made):
    groups, causes = made
    asked = []

    def fails(changes):
        assert changes == tuple(sorted(changes))
        asked.append(changes)
        return any(cause <= set(changes) for cause in causes)

    found = delta_debugging.search(groups, fails)
    assert {frozenset(each) for each in found.causes} == causes
    assert found.suspects == ()
    rest = {x for group in groups for x in group} - {x for c in causes for x in c}
    assert set(found.rest) == rest


@given(planted(), st.data())
def test_changes_that_cannot_be_tried_apart_are_found_together(made, data):
    groups, causes = made
    number = sum(map(len, groups))
    bound = set(range(number)[: data.draw(st.integers(0, number))])

    def fails(changes):
        is_broken = 0 < len(bound & set(changes)) < len(bound)
        return not is_broken and any(cause <= set(changes) for cause in causes)

    for cause in delta_debugging.search(groups, fails).causes:
        assert fails(cause)
        assert not any(fails(tuple(x for x in cause if x != each)) for each in cause)


@given(planted(), st.integers(0, 20))
def test_without_tries_left_the_suspects_contain_what_is_not_found(made, tries):
    groups, causes = made
    tried = set()

    def fails(changes):
        if changes not in tried and len(tried) == tries:
            raise delta_debugging.NoMoreTriesError
        tried.add(changes)
        return any(cause <= set(changes) for cause in causes)

    found = delta_debugging.search(groups, fails)
    known = {frozenset(each) for each in found.causes}
    assert known <= causes
    if known != causes:
        assert any(x <= set(found.suspects) for x in causes - known)


def test_one_cause_among_many_takes_few_tries():
    tried = set()

    def fails(changes):
        tried.add(changes)
        return 700 in changes

    found = delta_debugging.search([range(1000)], fails)
    assert found.causes == ((700,),)
    assert len(tried) <= 2 * 10 + 2

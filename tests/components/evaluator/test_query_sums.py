"""Sums over queries: beside all orders of tied rows, scikit-learn and a plain loop."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from strategos.components.evaluation.by_query import totals
from strategos.components.evaluation.by_query.rows import Writer
from strategos.components.evaluation.by_query.ties import Lists
from strategos.components.evaluation.classes.entries import SliceMembership
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.outcome.bounds import ONE_LABEL, judge
from strategos.components.evaluation.scored import Queries, Scored
from strategos.components.evaluation.sums import Sums

NAMES = ["ndcg", "ndcg@2", "mrr", "mrr@2"]
derandomized = settings(derandomize=True, deadline=None, max_examples=60)
LISTS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0.25, 0.5, 0.75])),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)


def in_order(name, labels):
    """A metric of rows in one order, as the textbook has it."""
    kind, _, top = name.partition("@")
    places = range(1, int(top or len(labels)) + 1)
    if kind == "mrr":
        return next((1 / i for i, x in zip(places, labels) if x), 0.0)  # noqa: B905

    def gain(labels):
        pairs = zip(places, labels)  # noqa: B905
        return sum((2**x - 1) / math.log2(1 + i) for i, x in pairs)

    return gain(labels) / gain(sorted(labels, reverse=True))


def of_all_orders(name, labels, scores):
    """The mean over the orders in which no score rises."""
    orders = [
        in_order(name, [labels[i] for i in order])
        for order in itertools.permutations(range(len(labels)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    return np.mean(orders)


@derandomized
@given(queries=LISTS)
def test_tied_rows_have_the_mean_over_all_of_their_orders(queries):
    start = np.cumsum([0, *map(len, queries)])[:-1]
    rows = np.array([row for query in queries for row in query], np.float64)
    lists = Lists(start, 2 ** rows[:, 0] - 1)
    ranked = lists.ranked(rows[:, 1])
    for name in NAMES:
        ours = METRICS[name].values(lists, ranked)
        chance = METRICS[name].values(lists, lists.by_chance)
        for i, query in enumerate(queries):
            labels, scores = zip(*query, strict=True)
            if not any(labels):
                continue
            assert ours[i] == pytest.approx(of_all_orders(name, labels, scores))
            assert chance[i] == pytest.approx(of_all_orders(name, labels, [0] * 9))


def test_ndcg_is_that_of_scikit_learn_and_the_best_order_is_exactly_1():
    draw = np.random.default_rng(0)
    size = draw.integers(2, 60, 300)
    start = np.cumsum(size) - size
    label = draw.integers(0, 5, size.sum()).astype(np.float64)
    score = draw.choice([0.1, 0.3, 0.5, 0.7], size.sum())
    lists = Lists(start, 2**label - 1)
    for top in (None, 1, 10, 1000):
        metric = METRICS["ndcg" if top is None else f"ndcg@{top}"]
        found = metric.values(lists, lists.ranked(score))
        best = metric.values(lists, lists.ranked(label))
        for i, (a, n) in enumerate(zip(start, size, strict=True)):
            if label[a : a + n].any():
                rows = [2 ** label[a : a + n] - 1], [score[a : a + n]]
                assert found[i] == pytest.approx(ndcg_score(*rows, k=top), abs=1e-12)
                assert best[i] == 1.0


TABLES = st.lists(
    st.tuples(
        st.integers(0, 5),  # the query
        st.integers(0, 2),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([0.25, 0.75]),
        st.sampled_from([0.0, 0.5, 2.0]),  # the weight
        st.sets(st.sampled_from(["a", "b"])),
    ),
    min_size=1,
    max_size=40,
)


def added_up(rows, folder, cuts, weighted):
    """The sums of rows that go to workers in parts."""
    scored, writers = None, []
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for a, b in itertools.pairwise(ends):
        part = rows[a:b]
        query, label, one, other, weight, _ = (
            zip(*part, strict=True) if part else [()] * 6
        )
        label, weight = np.array(label, float), np.array(weight, float)
        pairs = [(i, v) for i, row in enumerate(part) for v in sorted(row[5])]
        present = sorted({value for _, value in pairs})
        member = SliceMembership(
            present,
            np.array([i for i, _ in pairs], np.int64),
            np.array([present.index(v) for _, v in pairs], np.int64),
        )
        scores = {
            "m": {"prediction": np.array(one)},
            "b": {"prediction": np.array(other)},
        }
        counted = weight if weighted else None
        sums = Sums(NAMES, "regression", resampled="slices")
        times = resampling.times("a", a, len(part))
        sums.add(label, scores, {"f": member}, counted, times=times)
        writer = Writer(str(folder))
        bits = resampling.mixed(np.array(query, np.uint64))
        writer.add(bits, bits >= 0, label, scores, {"f": member}, counted)
        writer.flush()
        writers.append(writer)
        found = Scored(sums, queries=Queries(tuple(writer.files)))
        scored = scored.merge(found) if scored else found
    totals.add(scored, NAMES, ["m", "b"], str(folder))
    return scored


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    rows=TABLES,
    cuts=st.lists(st.integers(0, 40), max_size=4),
    weighted=st.booleans(),
    at_once=st.sampled_from([3, 1000]),
)
def test_rows_of_a_query_in_any_shards_give_the_means_over_queries(
    tmp_path_factory, rows, cuts, weighted, at_once
):
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(totals, "ROWS_AT_ONCE", at_once)
        scored = added_up(rows, folder, cuts, weighted)
    counts = [row for row in rows if row[4] or not weighted]
    queries = {
        q: [row for row in counts if row[0] == q] for q in {x[0] for x in counts}
    }
    assert scored.queries.number == len(queries)
    assert scored.queries.ranked == sum(len(x) > 1 for x in queries.values())
    ids = np.array(sorted(queries), np.uint64)
    times = resampling.times_of(resampling.mixed(ids))
    resampled = scored.sums.of_resamples("m")
    for piece in scored.sums.metrics("m", "b"):
        some = {
            q: each
            for q, each in queries.items()
            if piece.feature is None or any(piece.value in row[5] for row in each)
        }
        for name in NAMES:
            found = (
                piece.metrics[name],
                piece.baseline[name],
                piece.trivial.metrics[name],
            )
            for value, column in zip(found, (2, 3, None), strict=True):
                wanted = mean(name, some.values(), column, weighted)
                assert value == pytest.approx(wanted, nan_ok=True)
        of_slice = resampled[piece.feature, piece.value]
        for sample, values in enumerate(zip(*of_slice.values(), strict=True)):
            again = [
                some[int(q)]
                for q, n in zip(ids, times[:, sample], strict=True)
                for _ in range(n)
                if int(q) in some
            ]
            for name, value in zip(NAMES, values, strict=True):
                wanted = mean(name, again, 2, weighted)
                assert value == pytest.approx(wanted, nan_ok=True)


def mean(name, queries, column, weighted):
    """The mean over queries of a metric of the scores in a column; None for ties."""
    total = weights = 0.0
    for rows in queries:
        labels = [row[1] for row in rows]
        if not any(labels):
            continue
        scores = np.array([0 if column is None else row[column] for row in rows])
        lists = Lists(np.array([0]), 2.0 ** np.array(labels) - 1)
        (value,) = METRICS[name].values(lists, lists.ranked(scores))
        weight = np.mean([row[4] for row in rows]) if weighted else 1.0
        total, weights = total + weight * value, weights + weight
    return total / weights if weights else math.nan


def test_a_model_that_fails_on_some_rows_is_left_out(tmp_path):
    writer, query = Writer(str(tmp_path)), np.arange(4, dtype=np.uint64) // 2
    label, sums = np.array([0.0, 1.0, 1.0, 0.0]), Sums(NAMES, "regression")
    answers = {name: {"prediction": np.arange(4.0)} for name in ("m", "b")}
    for scores in (answers, {"m": answers["m"]}):
        sums.add(label, scores, {})
        writer.add(query, query >= 0, label, scores, {}, None)
    writer.flush()
    scored = Scored(sums, unusable={"b": "it fails"}, queries=Queries((*writer.files,)))
    totals.add(scored, NAMES, ["m", "b"], str(tmp_path))
    (overall,) = scored.sums.metrics("m")
    # Rows that come twice are tied: of the second query, the last of four is the best.
    assert overall.metrics["mrr@2"] == pytest.approx((1 + 0) / 2)


def test_nothing_is_better_where_each_order_is_the_best(tmp_path):
    rows = [(i // 2, 1 + i // 2, 0.25, 0.75, 1.0, {"a"}) for i in range(6)]
    rows += [(9, 0, 0.75, 0.25, 1.0, {"b"}), (9, 2, 0.25, 0.75, 1.0, {"b"})]
    pieces = added_up(rows, tmp_path, [], weighted=False).sums.metrics("m")
    inner = {"better_than": "trivial"}
    first, *checks = judge({"ndcg": {**inner, "slices": {"f": inner}}}, pieces)
    assert not first.ok
    assert {x.slice: (x.ok, x.skipped) for x in checks} == {
        "f=a": (True, ONE_LABEL),
        "f=b": (False, None),
    }


def test_a_slice_of_one_label_is_judged_as_its_queries_have_others(tmp_path):
    rows = [(0, 1, 0.25, 0.75, 1.0, {"a"}), (0, 0, 0.75, 0.25, 1.0, {"b"})]
    inner = {"better_than": "trivial"}
    for model, better in (("m", False), ("b", True)):
        pieces = added_up(rows, tmp_path, [], weighted=False).sums.metrics(model)
        checks = judge({"ndcg": {"slices": {"f": inner}}}, pieces)
        assert [(x.slice, x.ok, x.skipped) for x in checks] == [
            ("f=a", better, None),
            ("f=b", better, None),
        ]


def test_an_answer_that_is_not_finite_leaves_the_metrics_undefined(tmp_path):
    rows = [(0, 1, 0.5, 0.5, 1.0, {"a"}), (0, 0, math.nan, 0.2, 1.0, {"b"})]
    rows += [(1, 1, 0.5, 0.5, 1.0, {"c"})]
    scored = added_up(rows, tmp_path, [1], weighted=False)
    by_slice = {
        piece.value: piece.metrics["ndcg"] for piece in scored.sums.metrics("m")
    }
    # The query of row `a` has the row whose answer is NaN.
    assert all(math.isnan(by_slice[value]) for value in (None, "a", "b"))
    assert by_slice["c"] == 1.0

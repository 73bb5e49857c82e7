"""`evaluator.query`, and the metrics that need it."""

from __future__ import annotations

import pytest

from strategos.pipeline.config.loading import ConfigError, load

METRICS = "evaluator.metrics=[auc, log_loss, ndcg@10, mrr]"
SPLIT = "data.split={by: hash, keys: [carrier]}"
QUERY = "evaluator.query=carrier"


def problem(path, *sets):
    with pytest.raises(ConfigError) as caught:
        load(path, sets=sets)
    (only,) = caught.value.problems
    return only


def test_metrics_by_query_have_bounds_like_others(workload):
    bounds = "{ndcg@10: {at_least: 0.5, better_than: trivial}, mrr: {may_drop: 0.1}}"
    sets = [METRICS, SPLIT, QUERY, f"evaluator.bounds={bounds}"]
    evaluator = load(workload, sets=sets).config.evaluator
    assert evaluator.query == "carrier"
    assert evaluator.bounds["ndcg@10"].better_than == "trivial"


@pytest.mark.parametrize(
    ("sets", "key", "text"),
    [
        ([METRICS, SPLIT], "query", "`ndcg@10` ranks the rows of a query, and no colu"),
        ([SPLIT, QUERY], "query", "received carrier; no metric ranks the rows"),
        (
            [METRICS, QUERY, "data.split={by: ratio, keys: []}"],
            "query",
            "`data.split` divides them row by row",
        ),
        ([METRICS, SPLIT, "evaluator.query=late"], "query", "`late` is the label"),
        ([METRICS.replace("mrr", "mrr@0"), SPLIT, QUERY], "metrics.3", "as `mrr@10`"),
        (
            [METRICS, SPLIT, QUERY, "evaluator.bounds.mrr={at_least: 1.5}"],
            "bounds.mrr.at_least",
            "mrr is at most 1",
        ),
        (
            ["evaluator.metrics=[auc, log_loss, {class: NDCG, config: {gain_key: x}}]"],
            "metrics.2",
            "Write `ndcg@10`, and the column of the queries as `query`",
        ),
        (
            [METRICS, SPLIT, QUERY, "evaluator.task=multi_class"],
            "metrics",
            "`ndcg@10` is not defined for the task multi_class",
        ),
    ],
)
def test_a_query_without_its_metric_and_so_on_are_rejected(workload, sets, key, text):
    with pytest.raises(ConfigError) as caught:
        load(workload, sets=sets)
    found = [x for x in caught.value.problems if x.key.startswith(f"evaluator.{key}")]
    assert text in "\n".join(map(str, found)), caught.value


@pytest.mark.parametrize("split", ["by: time, column: day, eval: 30d", "by: span"])
def test_a_split_by_time_or_span_is_accepted(workload, split):
    load(workload, sets=[METRICS, QUERY, f"data.split={{keys: [], {split}}}"])


def test_a_head_is_ranked(workload):
    sets = [
        "label={late: late, delay: delay}",
        "evaluator={task: {late: binary, delay: regression}, metrics: [late.auc, "
        "delay.ndcg@5], query: carrier, bounds: {auc: null}}",
        SPLIT,
    ]
    assert load(workload, sets=sets).config.evaluator.query == "carrier"
    assert "no metric ranks" in str(
        problem(workload, sets[0], sets[1].replace("delay.ndcg@5", "delay.mae"), SPLIT)
    )

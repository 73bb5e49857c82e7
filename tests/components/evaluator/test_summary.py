from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import asdict

import pytest

from strategos.components.evaluation.outcome import bounds, summary
from strategos.components.evaluation.slices.measured import SliceMetrics, Trivial


def overall(auc, before=None, examples=1000):
    baseline = None if before is None else {"auc": before}
    return SliceMetrics(None, None, examples, {"auc": auc}, baseline)


def carrier(value, auc, examples):
    return SliceMetrics("carrier", value, examples, {"auc": auc})


def judge(bound, *slices):
    return bounds.judge({"auc": bound}, slices)


def summarize(checks, *slices):
    return summary.summarize(task="binary", label="late", slices=slices, checks=checks)


def test_bounds_include_their_own_value():
    checks = judge({"at_least": 0.7, "at_most": 0.7}, overall(0.7))
    assert [check.ok for check in checks] == [True, True]


def test_overall_bound_does_not_hold_for_slices():
    checks = judge({"at_least": 0.7}, overall(0.8), carrier("OO", 0.1, 500))
    assert [(check.slice, check.ok) for check in checks] == [("overall", True)]


def test_slice_bound_holds_for_each_value_of_the_feature():
    checks = judge(
        {"slices": {"carrier": {"at_least": 0.6}}},
        overall(0.8),
        carrier("OO", 0.5, 500),
        carrier("UA", 0.9, 500),
    )
    assert [(check.slice, check.ok) for check in checks] == [
        ("carrier=OO", False),
        ("carrier=UA", True),
    ]


def test_slice_with_too_few_examples_is_skipped_with_a_note():
    (check,) = judge(
        {"slices": {"carrier": {"at_least": 0.6}}, "min_examples": 100},
        overall(0.8),
        carrier("OO", 0.1, 99),
    )
    assert check.ok and check.received is None
    assert check.skipped == bounds.FEW_EXAMPLES
    assert check.note == "fewer than 100 examples"


def test_slice_with_just_enough_examples_is_judged():
    bound = {"slices": {"carrier": {"at_least": 0.6}}, "min_examples": 100}
    (check,) = judge(bound, overall(0.8), carrier("OO", 0.1, 100))
    assert (check.ok, check.received, check.skipped) == (False, 0.1, None)


@pytest.mark.parametrize(("bound", "auc"), [("may_drop", 0.625), ("may_rise", 0.875)])
def test_a_change_of_just_the_bound_holds(bound, auc):
    (just,) = judge({bound: 0.125}, overall(auc, before=0.75))
    off = math.copysign(2**-40, auc - 0.75)
    (more,) = judge({bound: 0.125}, overall(auc + off, before=0.75))
    assert (just.ok, more.ok) == (True, False)


@pytest.mark.parametrize(
    ("before", "after"), [(0.17, 0.02), (0.05, 0.03), (3.3e6, 3e6), (-0.3, -0.42)]
)
def test_a_change_of_just_the_bound_in_decimals_holds(before, after):
    """Some of the differences exceed the bound as doubles."""
    limit = round(before - after, 9)
    more = limit * (1 - 1e-9)
    for bound, pair in (("may_drop", (before, after)), ("may_rise", (after, before))):
        piece = overall(pair[1], before=pair[0])
        assert [judge({bound: x}, piece)[0].ok for x in (limit, more)] == [True, False]


def test_min_examples_is_not_for_the_overall_bound():
    (check,) = judge({"at_least": 0.9, "min_examples": 5000}, overall(0.8))
    assert not check.ok


def test_drop_and_rise_are_measured_against_the_model_in_production():
    checks = judge({"may_drop": 0.01, "may_rise": 0.01}, overall(0.70, before=0.75))
    drop, rise = checks
    assert not drop.ok and math.isclose(drop.received, 0.05)
    assert drop.note == "from 0.75 to 0.7"
    assert rise.ok and math.isclose(rise.received, -0.05)


def test_change_bound_without_a_model_in_production_is_skipped_with_a_note():
    (check,) = judge({"may_drop": 0.01}, overall(0.1))
    assert check.ok and "no model in production" in check.note


def test_undefined_metric_fails_its_bound_by_name():
    (check,) = judge({"at_least": 0.5}, overall(math.nan))
    line = summary.describe(asdict(check))
    assert not check.ok
    assert line.startswith("auc, overall: at least 0.5 required, nothing received")
    assert "all labels are the same" in line


def one_class(**changes):
    trivial = Trivial(1.0, {"auc": math.nan}, is_perfect=True)
    piece = carrier("OO", math.nan, 40)
    return dataclasses.replace(piece, **{"trivial": trivial} | changes)


def test_a_slice_of_one_class_is_not_judged_and_counted():
    pieces = overall(0.8), one_class(), carrier("UA", 0.9, 500)
    checks = judge({"slices": {"carrier": {"at_least": 0.6}}}, *pieces)
    assert [(check.ok, check.skipped) for check in checks] == [
        (True, bounds.UNDEFINED),
        (True, None),
    ]
    assert summarize(checks, *pieces)["reason"] == (
        "bounds held: 1, skipped: 1 (undefined: all labels are the same)"
    )


@pytest.mark.parametrize(
    "piece",
    [
        one_class(finite=False),
        one_class(trivial=Trivial(0.5, {"auc": 0.5})),
        dataclasses.replace(one_class(), feature=None, value=None),
    ],
    ids=["a prediction is NaN", "both classes", "overall"],
)
def test_an_undefined_metric_that_is_not_due_to_a_slice_of_one_class_fails(piece):
    whole = (overall(0.8),) if piece.feature else ()
    bound = {"slices": {"carrier": {"at_least": 0.6}}}
    checks = judge(bound if piece.feature else {"at_least": 0.6}, *whole, piece)
    assert [check.ok for check in checks] == [False]


def test_a_slice_of_one_class_fails_where_the_bound_says_so():
    bound = {"slices": {"carrier": {"at_least": 0.6}}, "undefined": "fail"}
    (check,) = judge(bound, overall(0.8), one_class())
    assert not check.ok and "all labels are the same" in check.note


def test_feature_without_any_value_fails_its_bound():
    (check,) = judge({"slices": {"carrier": {"at_least": 0.6}}}, overall(0.8))
    assert not check.ok
    assert check.slice == "carrier=*"
    assert "no example has a value of `carrier`" in check.note


def with_error(auc, error, before=None):
    found = overall(auc, before)
    return dataclasses.replace(found, errors={"auc": error})


def test_bound_within_the_error_of_its_metric_says_so():
    piece = with_error(0.7004, 0.001)
    checks = judge({"at_least": 0.7, "at_most": 0.9}, piece)
    assert [check.within_error for check in checks] == [True, False]
    line = (
        "auc, overall: at least 0.7 required, 0.7004 received "
        "(1,000 examples; known to ±0.001; the bound is within the error)"
    )
    assert summary.describe(asdict(checks[0])) == line
    reason = summarize(checks, piece)["reason"]
    assert reason == f"bounds held: 2. Within the error of the metric: {line}"


def test_change_is_known_to_the_errors_of_both_models():
    (check,) = judge({"may_drop": 0.01}, with_error(0.7, 0.001, before=0.7115))
    assert not check.ok and check.within_error
    assert check.note == "from 0.7115 to 0.7, known to ±0.002"


def test_no_bounds_is_an_explicit_verdict():
    result = summarize([], overall(0.8))
    assert result["blessed"] is True
    assert result["reason"] == "no bounds configured"


def test_reason_names_metric_slice_required_and_received():
    slices = (overall(0.8), carrier("OO", 0.51234, 120))
    result = summarize(
        judge({"slices": {"carrier": {"at_least": 0.6}}}, *slices), *slices
    )
    assert result["blessed"] is False
    assert result["reason"] == (
        "auc, carrier=OO: at least 0.6 required, 0.5123 received (120 examples)"
    )


def test_required_and_received_are_told_apart_when_close():
    (check,) = judge({"at_least": 0.7}, overall(0.6999999))
    assert "at least 0.7 required, 0.6999999 received" in summary.describe(
        asdict(check)
    )


def test_summary_is_strict_json_without_nan():
    slices = (overall(0.8, before=0.9), carrier("OO", math.nan, 3))
    result = summarize(judge({"at_least": 0.7}, *slices), *slices)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["slices"][0]["metrics"] == {"auc": None}
    assert result["baseline"] == {"auc": 0.9}


def test_shortened_summary_keeps_large_slices_and_failed_bounds():
    slices = [overall(0.8), *(carrier(f"c{i}", i / 100, 300 + i) for i in range(90))]
    checks = judge({"slices": {"carrier": {"at_least": 0.1}}}, *slices)
    whole = summarize(checks, *slices)
    short = summary.shortened(whole, 20)
    assert short["left_out"] == {"slices": 70, "bounds": 70}
    assert [piece["examples"] for piece in short["slices"]] == [*range(389, 369, -1)]
    assert [check["ok"] for check in short["bounds"]] == [False] * 10 + [True] * 10
    assert summary.shortened(whole, 90) == whole
    assert len(whole["slices"]) == 90


def test_reason_of_a_blessed_model_says_what_was_skipped_and_why():
    slices = (overall(0.8), carrier("OO", 0.9, 50), carrier("UA", 0.9, 60))
    bound = {"at_least": 0.7, "may_drop": 0.01, "min_examples": 100}
    checks = judge(bound | {"slices": {"carrier": {"at_least": 0.6}}}, *slices)
    assert summarize(checks, *slices)["reason"] == (
        "bounds held: 1, skipped: 1 (no model in production to compare with); "
        "2 (fewer than 100 examples)"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_fails_every_bound(value):
    bounds = {"at_least": 0.5, "at_most": 9.0, "may_drop": 1.0, "may_rise": 1.0}
    checks = judge(bounds, overall(value, before=0.9))
    assert [check.ok for check in checks] == [False] * 4


def test_a_model_in_production_that_cannot_be_measured_is_named_in_the_reason():
    slices = (overall(0.8, before=math.inf),)
    reason = summarize(judge({"may_drop": 0.01}, *slices), *slices)["reason"]
    assert "skipped: 1 (undefined for the model in production)" in reason

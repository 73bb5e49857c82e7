"""Spans scored by models: the canary's verdict, and the preview."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strategos.components.errors import UserError


def _export(folder, factor, code=False):
    """A SavedModel that predicts sigmoid(factor * delay), times the text `code`."""
    import tensorflow as tf

    class Sigmoid(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
        )
        def serve(self, examples):
            spec = {"delay": tf.io.FixedLenFeature([1], tf.float32)}
            if code:
                spec["code"] = tf.io.FixedLenFeature([1], tf.string)
            parsed = tf.io.parse_example(examples, spec)
            times = tf.strings.to_number(parsed["code"]) if code else 1.0
            return {"predictions": tf.sigmoid(factor * times * parsed["delay"])}

    model = Sigmoid()
    signatures = {"serving_default": model.serve}
    tf.saved_model.save(model, str(folder), signatures=signatures)
    return str(folder)


def test_a_canary_is_judged_overall_and_by_slice_beside_the_live_model(
    write, tmp_path, columns, gates
):
    from sklearn.metrics import roc_auc_score

    from strategos.components.span_validator import judging

    rows = columns(600, 2, mean=1.0)
    write(2, **rows)
    bound = {"at_least": 0.0, "may_drop": 0.0, "slices": {"carrier": {"at_least": 0.5}}}
    evaluator = {"task": "binary", "metrics": ["auc"], "bounds": {"auc": bound}}
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        "schema": "",
        "null_values": [],
        "span": [2, None],
        "usual": [],
        "gates": None,
        "others": {},
        "label": "late",
        "canary": _export(tmp_path / "canary", 1.0),
        "live": _export(tmp_path / "live", -1.0),
    }

    def judge(name, **changes):
        folder, given = str(tmp_path / name), {"evaluator": evaluator}
        return judging.judge({**request, **given, "folder": folder, **changes})

    found = judge("both")
    auc = roc_auc_score(rows["late"], rows["delay"])
    assert found["examples"] == 600
    assert found["overall"] == pytest.approx({"auc": auc})
    assert found["baseline"] == pytest.approx({"auc": 1 - auc})
    for each in found["slices"]:
        part = rows["carrier"] == each["value"]
        expected = roc_auc_score(rows["late"][part], rows["delay"][part])
        assert each["metrics"]["auc"] == pytest.approx(expected)
    assert len(found["slices"]) == 2
    assert found["blessed"] == all(check["ok"] for check in found["bounds"])
    given = {check["bound"]: check["received"] for check in found["bounds"][:2]}
    assert given == pytest.approx({"at_least": auc, "may_drop": 1 - 2 * auc})
    unusable = judge("unusable", live=str(tmp_path))
    assert [check["ok"] for check in unusable["bounds"][:2]] == [True, False]
    assert unusable["overall"] == found["overall"] and unusable["incomparable"]
    alone = judge("alone", live=None)
    assert (alone["baseline"], alone["overall"]) == (None, found["overall"])
    write(1, **columns(200, 1, mean=1.0))
    asked = {**gates, "skew": None, "drift": None}
    stopped = judge("gated", gates=asked, usual=[[1, None]])
    wide = {**asked, "rows": {"at_least": 0.6, "at_most": 3.0}}
    assert judge("passed", gates=wide, usual=[[1, None]]) == found
    assert stopped == {
        "at_fault": ["rows: 3 received, at most 1.6 allowed (600 rows; 200 are usual)"]
    }
    with pytest.raises(
        UserError, match=r"evaluator.slices: the span has no column `g`"
    ):
        judge("no slice", evaluator={**evaluator, "slices": ["g"]})


def test_a_preview_has_the_metrics_of_the_live_model_and_the_distances(
    write, tmp_path, columns
):
    from sklearn.metrics import accuracy_score, roc_auc_score

    from strategos.components.span_validator import preview_process

    model = _export(tmp_path / "model", 1.0)
    write(1, **columns(500, 1))
    new = columns(600, 2, mean=1.0)
    write(2, **new)
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        "schema": "",
        "null_values": [],
        "folder": str(tmp_path / "work"),
        "span": [2, None],
        "reference": [1, None],
        "drift": {"at_most": 0.1, "features": {}},
        "model": model,
        "label": "late",
        "task": "binary",
        "metrics": ["auc", "accuracy"],
    }
    found = preview_process.preview(request)
    scores = 1 / (1 + np.exp(-new["delay"]))
    assert found["metrics"] == pytest.approx(
        {
            "auc": roc_auc_score(new["late"], scores),
            "accuracy": accuracy_score(new["late"], scores > 0.5),
        }
    )
    assert found["distances"]["delay"] > 0.1 > found["distances"]["late"]
    assert found["chance"].keys() == {"delay", "when"}
    assert found["distances"]["delay"] > found["chance"]["delay"]
    write(3, **{name: values for name, values in new.items() if name != "late"})
    with pytest.raises(UserError, match="label: the span has no column `late`"):
        preview_process.preview(
            {**request, "span": [3, None], "folder": f"{tmp_path}/3"}
        )
    by_query = {"metrics": ["mrr"], "query": "carrier", "folder": f"{tmp_path}/query"}
    found = preview_process.preview({**request, **by_query, "reference": None})
    first = [
        1 + new["late"][part][np.argsort(-scores[part])].argmax()
        for part in (new["carrier"] == each for each in np.unique(new["carrier"]))
    ]
    assert found["metrics"] == pytest.approx({"mrr": np.mean(1 / np.array(first))})
    alone = preview_process.preview({**request, "reference": None, "model": None})
    assert alone == {"distances": {}, "chance": {}, "metrics": {}}


def test_a_span_with_several_values_in_a_row_is_scored(tmp_path):
    """Of lists of any length, beside the columns that the model reads."""
    from strategos.components.span_validator import preview_process

    rows = [
        {"delay": n - 2.0, "late": n % 2, "tags": ["a"] * (n % 4)} for n in range(6)
    ]
    file = tmp_path / "data" / "1.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}.jsonl"),
        **{"schema": "", "null_values": [], "folder": str(tmp_path / "work")},
        **{"span": [1, None], "reference": None},
        "model": _export(tmp_path / "model", 1.0),
        **{"label": "late", "task": "binary", "metrics": ["accuracy"]},
    }
    right = np.mean([(row["delay"] > 0) == row["late"] for row in rows])
    found = preview_process.preview(request)["metrics"]
    assert found == pytest.approx({"accuracy": right})


def test_a_span_is_scored_with_the_types_of_the_model_that_it_would_not_have(
    write, tmp_path, columns
):
    from sklearn.metrics import roc_auc_score

    from strategos.components.span_validator import preview_process

    model = _export(tmp_path / "model", 1.0, code=True)
    schema = tmp_path / "model" / "assets.extra" / "schema.pbtxt"
    schema.parent.mkdir()
    types = {"delay": "FLOAT", "code": "BYTES"}
    features = (f'feature {{ name: "{n}" type: {t} }}' for n, t in types.items())
    schema.write_text("\n".join(features))
    rows = columns(600, 2, mean=1.0) | {"code": np.arange(600) % 2 + 1}
    rows["delay"] = rows["delay"].round().astype(int)
    write(2, **rows)
    request = {
        "pattern": str(tmp_path / "data" / "{SPAN}" / "rows.csv"),
        **{"schema": "", "null_values": [], "folder": str(tmp_path / "work")},
        **{"span": [2, None], "reference": None, "model": model},
        **{"label": "late", "task": "binary", "metrics": ["auc"]},
    }
    expected = roc_auc_score(rows["late"], rows["delay"] * rows["code"])
    assert preview_process.preview(request)["metrics"] == pytest.approx(
        {"auc": expected}
    )

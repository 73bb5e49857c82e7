"""Metrics by query, beside all orders of tied rows, scikit-learn, and TFMA."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from sklearn.metrics import ndcg_score
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import standard_artifacts

from strategos.components.errors import UserError
from strategos.components.evaluation import scoring
from strategos.components.evaluation.by_query import totals
from strategos.components.evaluator import SUMS_VARIABLE, judging_executor
from strategos.components.shards import beam_runners
from strategos.components.shards.engine import Engine


@pytest.fixture(scope="module")
def rows():
    """Rows of 90 queries, which are mixed; `delay` is a grade."""
    draw = np.random.default_rng(2)
    found = []
    for i in range(800):
        x = draw.normal(size=2)
        query, grade = int(draw.integers(90)), float(draw.choice([0.0, 1.0, 3.0]))
        found.append(
            {
                "x": [float(v) for v in x],
                "late": int(grade > 1),
                "delay": grade,
                "number": 2**grade - 1,
                "whole": query,
                "word": f"q{query}",
                "month": query % 3,
                "carrier": [["OO"], ["UA", "AA"], []][i % 3],
                "w": float(1 + query % 4),
            }
        )
    return found


def grouped(rows, score):
    """Labels and scores of the queries with a label above 0."""
    by_query = {}
    for row, value in zip(rows, score, strict=True):
        by_query.setdefault(row["word"], []).append((row["delay"], value))
    lists = (np.array(x).T for x in by_query.values())
    return [(labels, scores) for labels, scores in lists if labels.any()]


@pytest.mark.parametrize("query", ["whole", "word"])
def test_a_model_is_judged_by_query(
    workload, tmp_path, evaluate, eval_split, rows, query, artifact
):
    model = workload["regression", "baseline"]
    bounds = {"ndcg@5": {"better_than": "trivial", "may_drop": 0.9}}
    section = {"metrics": ["mae", "ndcg@5", "mrr"], "slices": ["month"]}
    found, evaluation, _ = evaluate(
        *(workload, tmp_path, "regression"),
        examples=eval_split(rows, files=4),
        query=query,
        bounds=bounds,
        confidence_level=0.9,
        baseline=artifact(standard_artifacts.Model, model, none=0),
        **section,
    )
    lists = grouped(rows, [row["x"][0] for row in rows])
    wanted = [ndcg_score([2**x - 1], [y], k=5) for x, y in lists if len(x) > 1]
    assert all(len(x) > 1 for x, _ in lists)
    assert found["overall"]["ndcg@5"] == pytest.approx(np.mean(wanted))
    first = [np.flatnonzero(x[np.argsort(-y)])[0] + 1 for x, y in lists]
    assert found["overall"]["mrr"] == pytest.approx(np.mean(1 / np.array(first)))
    assert found["baseline"]["mrr"] == pytest.approx(found["overall"]["mrr"])
    low, high = found["intervals"]["metrics"]["ndcg@5"]
    half = 1.73 * np.std(wanted) / math.sqrt(len(wanted))
    assert (high - low) / 2 == pytest.approx(half, rel=0.5)
    chance = [ndcg_score([2**x - 1], [0 * y], k=5) for x, y in lists]
    assert found["trivial"]["ndcg@5"] == pytest.approx(np.mean(chance))
    number = len({row["word"] for row in rows})
    relevant = {"column": query, "number": number, "relevant": len(lists)}
    assert found["queries"] == relevant
    config = tfma.load_eval_result(evaluation.uri).config
    assert [each.query_key for each in config.metrics_specs] == ["", query]
    assert not [x for x in (tmp_path / "evaluation").iterdir() if x.is_dir()]


@pytest.mark.parametrize(
    "engine",
    ["helpers", *(pytest.param(x, marks=pytest.mark.long) for x in ("beam", "s3"))],
)
def test_workers_of_any_engine_find_the_rows_of_a_query(
    workload, tmp_path, evaluate, eval_split, rows, monkeypatch, request, engine
):
    examples = eval_split(rows, files=9)
    section = {"metrics": ["ndcg@5", "mrr"], "slices": ["carrier"], "query": "word"}

    def judged(name, engine):
        monkeypatch.setenv(*engine.to_environment().popitem())
        parts = workload, tmp_path / name, "regression"
        return evaluate(*parts, examples=examples, **section)[0]

    one = judged("one", Engine(workers=1))
    monkeypatch.setattr(scoring, "SHARD_BYTES", 1)
    monkeypatch.setattr(totals, "ROWS_AT_ONCE", 100)
    engines = {"helpers": Engine(workers=3), "beam": Engine("pipeline")}
    if engine == "s3":
        url = f"{request.getfixturevalue('bucket')}/store/.engine"
        engines["s3"] = Engine("pipeline", exchange=url)
    in_process = beam_runners.make_pipeline
    monkeypatch.setattr(beam_runners, "make_pipeline", lambda _: in_process(Engine()))
    found = judged("other", engines[engine])
    assert found["queries"] == one["queries"]
    for ours, theirs in zip(found["slices"], one["slices"], strict=True):
        assert ours["metrics"] == pytest.approx(theirs["metrics"], rel=1e-12)


@pytest.mark.long
def test_ndcg_of_slices_and_weights_equals_tfma(
    workload, tmp_path, evaluate, eval_split, rows
):
    examples = eval_split(rows, files=3)
    found, *_ = evaluate(
        *(workload, tmp_path, "regression"),
        examples=examples,
        query="word",
        weight="w",
        metrics=["ndcg@3"],
        slices=["month", "carrier"],
    )
    config = text_format.Parse(
        """
        model_specs { signature_name: "serving_default" prediction_key: "predictions"
                      label_key: "delay" example_weight_key: "w" }
        slicing_specs {}
        slicing_specs { feature_keys: "month" }
        slicing_specs { feature_keys: "carrier" }
        metrics_specs {
          query_key: "word"
          metrics { class_name: "NDCG"
                    config: '{"gain_key": "number", "top_k_list": [3]}' }
        }
        options { include_default_metrics { value: false } }
        """,
        tfma.EvalConfig(),
    )
    path = workload["regression", "candidate"]
    stock = tfma.run_model_analysis(
        eval_shared_model=tfma.default_eval_shared_model(
            f"{path}/Format-Serving", eval_config=config
        ),
        eval_config=config,
        data_location=f"{examples}/Split-eval/*",
        output_path=f"{tmp_path}/stock",
        schema=text_format.Parse(
            Path(workload["schema"], "schema.pbtxt").read_text(),
            schema_pb2.Schema(),
        ),
    )
    theirs = {
        key: value[""]["topK:3"]["ndcg"]["doubleValue"]
        for key, value in stock.slicing_metrics
    }
    ours = {((x["feature"], x["value"]),): x["metrics"] for x in found["slices"]}
    ours[()] = found["overall"]
    assert theirs.keys() == ours.keys() and len(ours) == 7
    for key, value in theirs.items():
        assert ours[key]["ndcg@3"] == pytest.approx(value, abs=1e-6), key


def test_other_bounds_are_judged_without_scoring_and_other_queries_are_not(
    workload, tmp_path, evaluate, eval_split, rows, monkeypatch
):
    examples = eval_split(rows)
    monkeypatch.setenv(SUMS_VARIABLE, str(tmp_path / "sums"))

    def judged(name, **settings):
        common = {"examples": examples, "metrics": ["ndcg@5", "mrr"], "query": "word"}
        parts = workload, tmp_path / name, "regression"
        return evaluate(*parts, **{**common, **settings})[0]

    first = judged("a")
    again = judged(
        *("b",),
        executor=judging_executor.Executor,
        bounds={"mrr": {"at_least": 0.999}},
    )
    assert again["overall"] == first["overall"] and not again["blessed"]
    assert again["queries"] == first["queries"]
    with pytest.raises(AssertionError):  # no sums are kept
        judged("c", executor=judging_executor.Executor, query="whole")


def test_heads_are_ranked_by_their_own_labels(
    tmp_path, evaluate, eval_split, rows, workload
):
    class Heads(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, examples):
            spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}
            x = tf.io.parse_example(examples, spec)["x"]
            return {"click": tf.sigmoid(x[:, :1]), "size": x[:, 1:]}

    heads = Heads()
    folder = f"{tmp_path}/model/Format-Serving"
    tf.saved_model.save(heads, folder, signatures={"serving_default": heads.serve})
    found, *_ = evaluate(
        *(workload, tmp_path),
        task={"click": "binary", "size": "regression"},
        label='{"click": "late", "size": "delay"}',
        model=str(tmp_path / "model"),
        examples=eval_split(rows),
        metrics=["click.mrr", "click.auc", "size.ndcg@4"],
        query="word",
    )
    lists = grouped(rows, [row["x"][1] for row in rows])
    wanted = [ndcg_score([2**x - 1], [y], k=4) for x, y in lists]
    assert found["overall"]["size.ndcg@4"] == pytest.approx(np.mean(wanted))
    clicks = [{**row, "delay": float(row["late"])} for row in rows]
    lists = grouped(clicks, [row["x"][0] for row in rows])
    first = [np.flatnonzero(x[np.argsort(-y)])[0] + 1 for x, y in lists]
    assert found["overall"]["click.mrr"] == pytest.approx(np.mean(1 / np.array(first)))


@pytest.mark.parametrize(
    ("change", "query", "message"),
    [
        ({"delay": -1.0}, "word", "label: received -1 as `delay` in the eval split\n"),
        ({"delay": 32.0}, "word", "32 as .*\n.* relevance from 0 to 31"),
        ({"word": ["a", "b"]}, "word", "query: received 2 values of `word` in ex"),
        ({}, "number", "query: `number` is a number with decimals in the schema"),
        ({}, "nothing", "query: received `nothing`; the schema has no"),
    ],
)
def test_rows_that_cannot_be_ranked_are_rejected(
    workload, tmp_path, evaluate, eval_split, rows, change, query, message
):
    bad = [*rows[:7], {**rows[7], **change}, *rows[8:]]
    with pytest.raises(UserError, match=message):
        evaluate(
            *(workload, tmp_path, "regression"),
            examples=eval_split(bad),
            metrics=["ndcg"],
            query=query,
        )


def test_a_column_that_names_each_row_is_no_query(
    workload, tmp_path, evaluate, eval_split, rows
):
    bad = [{**row, "whole": i} for i, row in enumerate(rows)]
    with pytest.raises(UserError, match="no query in the eval split has two rows"):
        evaluate(
            *(workload, tmp_path, "regression"),
            examples=eval_split(bad),
            metrics=["ndcg"],
            query="whole",
        )


def test_rows_without_a_query_are_not_ranked(
    workload, tmp_path, evaluate, eval_split, rows
):
    some = [
        {**row, "word": [] if i % 9 == 0 else row["word"]} for i, row in enumerate(rows)
    ]
    section = {"metrics": ["ndcg"], "query": "word"}
    parts = workload, tmp_path / "a", "regression"
    found, *_ = evaluate(*parts, examples=eval_split(some), **section)
    assert found["warnings"] == ["89 rows without a value of `word` are not ranked"]
    left = [row for row in some if row["word"]]
    parts = workload, tmp_path / "b", "regression"
    wanted, *_ = evaluate(*parts, examples=eval_split(left, name="b"), **section)
    assert found["overall"] == wanted["overall"] and not wanted["warnings"]

"""Texts of any number of words, ragged from `preprocessing_fn` to the pushed model."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from strategos.components.records import streams

pytestmark = pytest.mark.long

WORDS = ["bad", "dull", "fine", "great", "long", "new", "odd", "old", "short", "slow"]


def _write_reviews(path) -> None:
    """Reviews of up to eight words, of which one is "good" where the label says so."""
    generator = random.Random(1)
    lines = ["review,good"]
    for _ in range(1200):
        words = generator.choices(WORDS, k=generator.randrange(1, 8))
        good = generator.random() < 0.4
        if good:
            words.insert(generator.randrange(len(words) + 1), "good")
        lines.append(f"{'|'.join(words)},{int(good)}")
    path.parent.mkdir()
    path.write_text("\n".join(lines) + "\n")


def columns_of(examples, split):
    """The raw rows of a split, by column."""
    files = sorted((examples / streams.folder(split)).iterdir())
    batches = [batch for file in files for batch in streams.batches(str(file))]
    return pa.Table.from_batches(batches).to_pydict()


def test_a_model_of_ragged_words_is_judged_and_served_as_it_was_trained(
    tmp_path, copy_workload, make_workspace
):
    workspace = make_workspace(tmp_path)
    copy_workload("texts", tmp_path)
    _write_reviews(tmp_path / "data" / "reviews.csv")
    done = workspace.run()  # blessed: the AUC of the eval split reaches its bound
    assert "preprocessing.py: `stats_options_updater_fn` is not called" in done.stderr
    assert "both choose" not in done.stdout  # a callback chooses, but on validation
    examples = next((tmp_path / "runs").glob("*/ExampleGen/examples/*"))
    validating = columns_of(examples, "validation")
    rows = ["old|good|dull", "old|dull", "good"]
    rows += [review.decode() for review in validating["review"]]
    (tmp_path / "rows.csv").write_text("\n".join(["review", *rows]) + "\n")
    done = workspace.strategos(
        "predict", str(workspace.yaml), str(tmp_path / "rows.csv"), "--json"
    )
    answers = [json.loads(line)["predictions"] for line in done.stdout.splitlines()]
    assert [answer > 0.5 for answer in answers[:3]] == [True, False, True]
    likelihood = np.abs(np.array(answers[3:]) - 1 + np.array(validating["good"]))
    run = workspace.last_run()
    loss = run["trainer"]["evaluation"]["loss"]
    assert loss == pytest.approx(-np.log(likelihood).mean(), rel=1e-4)
    assert loss == pytest.approx(min(run["trainer"]["history"]["val_loss"]), rel=1e-5)
    judged = columns_of(examples, "eval")["good"]
    assert run["summary"]["examples"] == len(judged) != len(validating["good"])

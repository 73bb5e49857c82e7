"""Texts of any number of words, ragged from `preprocessing_fn` to the pushed model."""

from __future__ import annotations

import json
import random

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


def test_a_model_of_ragged_words_is_judged_and_served_as_it_was_trained(
    tmp_path, copy_workload, make_workspace
):
    workspace = make_workspace(tmp_path)
    copy_workload("texts", tmp_path)
    _write_reviews(tmp_path / "data" / "reviews.csv")
    done = workspace.run()  # blessed: the AUC of the eval split reaches its bound
    assert "preprocessing.py: `stats_options_updater_fn` is not called" in done.stderr
    (tmp_path / "rows.csv").write_text("review\nold|good|dull\nold|dull\ngood\n")
    done = workspace.strategos(
        "predict", str(workspace.yaml), str(tmp_path / "rows.csv"), "--json"
    )
    answers = [json.loads(line)["predictions"] for line in done.stdout.splitlines()]
    assert [answer > 0.5 for answer in answers] == [True, False, True]

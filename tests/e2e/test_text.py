"""Texts of any number of words, ragged from `preprocessing_fn` to the pushed model."""

from __future__ import annotations

import json
import random

PIPELINE = """
label: good
data: {examples: data/*.csv}
transform: {module: preprocessing, custom_config: {separator: "|"}}
trainer: {module: model, epochs: 4, batch_size: 64}
evaluator: {task: binary, metrics: [auc], bounds: {auc: {at_least: 0.98}}}
pusher: {to: serving}
"""

PREPROCESSING = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs, custom_config):
    words = tf.strings.split(
        tf.squeeze(inputs["review"], 1), custom_config["separator"])
    ids = tft.compute_and_apply_vocabulary(words, vocab_filename="words")
    return {"ids": ids, "good": inputs["good"]}

def stats_options_updater_fn(stats_type, stats_options):
    return stats_options
"""

MODEL = """
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    size = context.vocabulary_size("words") + 1
    vectors = tf.keras.layers.Embedding(size, 4)(inputs["ids"] + 1)
    total = tf.keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1))(vectors)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(total))
    model.compile(tf.keras.optimizers.Adam(0.1), "binary_crossentropy", ["AUC"])
    return model
"""

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
    tmp_path, make_workspace
):
    workspace = make_workspace(tmp_path)
    workspace.yaml.write_text(PIPELINE)
    (tmp_path / "preprocessing.py").write_text(PREPROCESSING)
    (tmp_path / "model.py").write_text(MODEL)
    _write_reviews(tmp_path / "data" / "reviews.csv")
    done = workspace.run()  # blessed: the AUC of the eval split reaches its bound
    assert "preprocessing.py: `stats_options_updater_fn` is not called" in done.stderr
    (tmp_path / "rows.csv").write_text("review\nold|good|dull\nold|dull\ngood\n")
    done = workspace.strategos(
        "predict", str(workspace.yaml), str(tmp_path / "rows.csv"), "--json"
    )
    answers = [json.loads(line)["predictions"] for line in done.stdout.splitlines()]
    assert [answer > 0.5 for answer in answers] == [True, False, True]

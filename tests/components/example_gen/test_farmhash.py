"""pyfarmhash, whose version the lock overrides, against TensorFlow's FarmHash."""

from __future__ import annotations

import random

import farmhash
import tensorflow as tf


def test_fingerprints_are_those_of_tensorflow():
    pick = random.Random(1)
    letters = [chr(n) for n in (*range(1, 127), *range(160, 1000), 0x20AC, 0x1F600)]
    texts = ["".join(pick.choices(letters, k=n % 300)) for n in range(3000)]
    ours = [farmhash.fingerprint64(text) for text in texts]
    theirs = tf.fingerprint(texts, method="farmhash64").numpy()
    assert ours == [int.from_bytes(each, "little") for each in theirs]

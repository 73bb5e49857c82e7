from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
def test_names_that_were_taken_since_are_free_again_and_no_others(package):
    from strategos.components.trainer.compat import keras_names

    keras = importlib.import_module(package)
    before = keras.metrics.AUC().name
    free = keras_names.mark()
    made = [keras.metrics.AUC().name, keras.metrics.Precision().name]
    free()
    assert [keras.metrics.AUC().name, keras.metrics.Precision().name] == made
    assert made[0] != before

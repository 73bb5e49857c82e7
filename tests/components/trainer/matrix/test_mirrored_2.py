"""Cells of the matrix beside plain Keras; see combinations.py."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.matrix

STRATEGY = "mirrored_2"


def test_training_equals_plain_keras(cell, as_plain_keras):
    as_plain_keras(cell)

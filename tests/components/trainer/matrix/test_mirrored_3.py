"""Cells of the matrix beside plain Keras; see combinations.py."""

from __future__ import annotations

import pytest

STRATEGY = "mirrored_3"

pytestmark = pytest.mark.matrix


def test_training_equals_plain_keras(cell, as_plain_keras):
    as_plain_keras(cell)

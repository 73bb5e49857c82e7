"""The types of the values that a column of a file has in tf.Examples."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """Types of a tf.Example's values; each holds all values of the kinds before it.

    UNKNOWN is the kind of a column without any value.
    """

    UNKNOWN = 0
    INT = 1
    FLOAT = 2
    BYTES = 3

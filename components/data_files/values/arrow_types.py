"""Groups of Arrow types, as features see them."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def is_list(data_type: pa.DataType) -> bool:
    """Whether a column of this Arrow type may have several values in a row."""
    return (
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
    )


def is_time(data_type: pa.DataType) -> bool:
    """Whether values are dates, times of day or instants; no durations."""
    is_span = types.is_duration(data_type) or types.is_interval(data_type)
    return types.is_temporal(data_type) and not is_span


def is_text(data_type: pa.DataType) -> bool:
    """Whether values are UTF-8 text."""
    return types.is_string(data_type) or types.is_large_string(data_type)


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether values are bytes, text excluded."""
    return (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_fixed_size_binary(data_type)
    )

"""The names that Keras numbers: `dense`, `dense_1`, and so on for metrics."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable


def mark() -> Callable[[], None]:
    """Records which names are used; calling the result frees the names used since.

    Otherwise a model that is built a second time names its metric `auc_1`, which no
    callback monitors. Keras can only reset all names, including names of layers that
    the user's module made on import.
    """
    before = [(table, dict(table)) for table in _tables()]

    def free() -> None:
        for table, names in before:
            table.clear()
            table.update(names)

    return free


def _tables() -> list[dict]:
    """How often each name was used, in tf-keras and, if imported, in Keras 3."""
    from tf_keras.src import backend

    tables = [backend.get_default_graph_uid_map()]
    if "keras" in sys.modules:
        from keras.src.backend.common import global_state

        tables.append(
            global_state.get_global_attribute(
                "object_name_uids", collections.defaultdict(int), set_to_default=True
            )
        )
    return tables

"""The names that Keras numbers: `dense`, `dense_1`, and metrics likewise."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable


def mark() -> Callable[[], None]:
    """Remembers which names are taken; what it returns frees those taken since.

    Without this a model that is built a second time calls its metric `auc_1`, which
    nobody monitors. Keras itself can only forget all names, also those of layers that
    the user's module made when it was imported.
    """
    before = [(table, dict(table)) for table in _tables()]

    def free() -> None:
        for table, names in before:
            table.clear()
            table.update(names)

    return free


def _tables() -> list[dict]:
    """How often each name was given, by tf-keras and, if it is imported, by Keras 3."""
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

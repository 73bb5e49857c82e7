"""Prepares a process that runs nodes: one import of TensorFlow for all its workers."""

from __future__ import annotations

from strategos.components import fork_server


def prepare(*closed: int) -> None:
    """Imports TensorFlow and starts the fork server.

    Args:
      *closed: File descriptors of this process that workers must not keep open.
    """
    with fork_server.without_collections():
        # What training, the export and the InfraValidator's probe import, and helpers.
        from strategos.components.evaluator import scoring  # noqa: F401
        from strategos.components.example_gen import writing  # noqa: F401
        from strategos.components.statistics_gen import executor  # noqa: F401
        from strategos.components.trainer.run import session  # noqa: F401
        from strategos.components.transform import materialize  # noqa: F401
    fork_server.start(*closed)

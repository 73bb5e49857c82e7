"""Imports TFX's Launcher without TensorFlow and Beam, for the orchestrator only.

`tfx.types` imports TensorFlow and Beam if they are installed (3.6 s), and works without
them (0.35 s): TFX guards both imports. The orchestrator runs no executor that needs
them, so it hides both packages from its imports, and TFMA, which imports them. Modules
of messages can be imported still (`lone_messages`). pandas is hidden, too: Arrow
imports it (0.2 s) to see whether a list is one of its series, and works without it.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from strategos.components.processes import without_collections
from strategos.pipeline.plan import tfx_adapter

_HIDDEN = frozenset(
    {"tensorflow", "apache_beam", "tensorflow_model_analysis", "pandas"}
)


class _Hide:
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name in _HIDDEN:
            raise ModuleNotFoundError(f"{name} is hidden here", name=name)
        return None


def hide_heavy_imports() -> None:
    """Makes the packages invisible to later imports of this process."""
    if not any(isinstance(finder, _Hide) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hide())
    # TFX 1.21 prints that Beam is missing.
    quiet = io.StringIO()
    with (
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        without_collections(),
    ):
        tfx_adapter.import_launcher()


def import_launcher() -> None:
    """Imports TFX's Launcher with the packages hidden, which are visible again then.

    For a process that checks settings before it hides them: plug-ins that are tried may
    import any package.
    """
    hide_heavy_imports()
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Hide)]

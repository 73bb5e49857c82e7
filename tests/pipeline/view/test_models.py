from __future__ import annotations

import io

import pytest
from rich.console import Console

from strategos.pipeline.history.models import Version
from strategos.pipeline.view import models

_RUN = "20261121-163012.123456"
_NAMES = ["accuracy", "auc", "calibration", "precision"]


def shown(versions, width):
    file = io.StringIO()
    terminal = dict(force_terminal=True, color_system=None, _environ={})
    models.show(versions, "serving", Console(file=file, width=width, **terminal))
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100])
def test_versions_fit_their_terminal_and_hidden_metrics_are_named(width):
    metrics = dict.fromkeys(_NAMES, 0.5)
    first = Version(1795278914, "v", run_id=_RUN, metrics=metrics, live=True)
    copy = Version(1795278915, "v", run_id=_RUN, metrics=metrics, rollback_of=1)
    lines = shown([copy, first], width)
    *table, last = lines
    assert all(len(line) <= width for line in table)
    assert sum(_RUN in line for line in table) == 1  # whole, of the one not copied
    hidden = [name for name in _NAMES if name not in table[0].split()]
    assert last.startswith(f"{len(hidden)} more metric") and hidden[-1] in last
    assert "more metric" not in "".join(shown([copy, first], 140))

"""Trainings start as forks of one warm process of each of pytest's workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strategos.components import processes, worker_process
from strategos.components.trainer.gang import host


@pytest.fixture(scope="session")
def warm_hosts(warm_parent):
    """The process that the hosts of gangs are forked from."""
    imports = ["strategos.components.trainer.run.session"]
    return warm_parent([host._MODULE], imports, worker_process.TENSORFLOW)


@pytest.fixture(autouse=True, scope="module")
def warm_starts(warm_hosts) -> Iterator[None]:
    """Hosts of gangs start warm; a file that tests their start overrides this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "start", warm_hosts.start)
        yield

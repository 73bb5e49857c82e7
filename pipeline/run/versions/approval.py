"""A person's decision on the model that waits, with `pusher.approval`.

The model is in `pusher.canary`, as one on trial is; to approve it is to promote it, and
to veto it to abort it, with who decided and why in the records of ML Metadata.
"""

from __future__ import annotations

import dataclasses
import getpass
import platform
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, required
from strategos.components.runtime_parameters import NOTHING
from strategos.pipeline.history import models
from strategos.pipeline.history.models import Version
from strategos.pipeline.history.store import Store
from strategos.pipeline.run.versions import canary

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


@dataclasses.dataclass(frozen=True)
class Decision:
    """Who decides on a version, and why.

    Attributes:
      version: The number of the version that was looked at.
      by: The person, e.g. `ada@build-3`.
      because: The reason; "" for none.
    """

    version: int
    by: str
    because: str = ""

    def facts(self) -> dict[str, str]:
        """The properties of the records."""
        facts = {models.DECIDED_BY: self.by, models.DECIDED_BECAUSE: self.because}
        return {key: value for key, value in facts.items() if value}


def caller() -> str:
    """The user of this process and the host, e.g. `ada@build-3`."""
    return f"{getpass.getuser()}@{platform.node()}"


def approve(config: Config, store: Store, decision: Decision) -> tuple[Version, int]:
    """Makes the version that waits live.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      decision: The decision.

    Returns:
      The version that waited, and the number of its copy that is live.

    Raises:
      BadInputError: Another version waits, or none; or the model in production is not
        the one that this one was compared with.
      UserError: The model does not load, or the copy cannot be written.
    """
    waiting = _decided_on(config, store, decision, "approve")
    _check_comparison(config, store, waiting)
    promoted, pushed, _ = canary.promote(config, store, None, decision.facts())
    return promoted, pushed


def veto(config: Config, store: Store, decision: Decision) -> Version:
    """Withdraws the version that waits; its run counts as not blessed.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      decision: The decision.

    Returns:
      The version.

    Raises:
      BadInputError: Another version waits, or none.
    """
    _decided_on(config, store, decision, "veto")
    return canary.abort(config, store, decision.facts())


def _decided_on(config: Config, store: Store, decision: Decision, verb: str) -> Version:
    """The version that waits, if it is the one that was looked at."""
    if not required(config.pusher).approval:
        raise config.problem(
            "pusher.approval",
            "is not set, so no model waits for a person",
            remedy="Set `approval: true` and `canary: FOLDER`, and run the pipeline.",
        )
    waiting = canary.waiting(config, store, f"models {verb}")
    if waiting.version != decision.version:
        raise BadInputError(
            f"version {decision.version} does not wait for approval, version "
            f"{waiting.version} does: look at it first",
            key=f"strategos models {verb}",
        )
    return waiting


def _check_comparison(config: Config, store: Store, waiting: Version) -> None:
    """Rejects a version that was compared with another model than the one live now."""
    pusher = required(config.pusher)
    compared = required(pusher.slot).manifest(waiting.version)
    baseline = compared.get("baseline", NOTHING)
    live = models.live(store, pusher.to)
    if live is None:
        return
    places = {pusher.target.path(number) for number in (live.version, live.origin)}
    uncompared = baseline == NOTHING and live.version < waiting.version
    if baseline in places or uncompared:  # without a comparison: --without-baseline
        return
    before = "no model" if baseline == NOTHING else baseline
    raise BadInputError(
        f"version {waiting.version} was compared with {before}, and version "
        f"{live.version} is live now",
        key="strategos models approve",
        remedy="Run the pipeline again, which compares with that one.",
    )

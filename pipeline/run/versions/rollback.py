"""Makes an earlier version of the model live again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strategos.components.errors import BadInputError, required
from strategos.components.push_targets import endpoint, targets
from strategos.components.pusher import PUSHED_BY
from strategos.pipeline.history import models
from strategos.pipeline.history.models import Version
from strategos.pipeline.history.store import Store
from strategos.pipeline.run.versions import canary, pushes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strategos.pipeline.config.sections import Config


def roll_back(config: Config, store: Store, wanted: int | None) -> tuple[Version, int]:
    """Pushes a copy of an earlier version as the newest one, and records it.

    Model servers load the newest version, so the earlier model becomes live at once,
    and the withdrawn version stays for inspection.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      wanted: A version; None for the one before the model that is live.

    Returns:
      The earlier version, and the number of its copy.

    Raises:
      BadInputError: The version does not exist, or is live.
      UserError: The version does not load, or the copy cannot be written or deployed.
    """
    canary.settle(config, store)
    pusher = required(config.pusher)
    target = pusher.target
    versions = models.versions(store, pusher.to)
    version = _choose(versions, wanted, pusher.to)
    with targets.local(version.path) as folder:
        pushes.check_that_it_loads(version, folder)
        about = _manifest(target, version.version)
        pushed = target.push(folder, pusher.keep, about)
    at = pusher.endpoint
    endpoint.follow(at.settings() if at else None, target, pushed)
    facts = {models.ROLLBACK_OF: version.origin}
    path = target.path(pushed)
    pushes.record(store.mlmd, config, version, path, models.ROLLBACK, facts)
    pushes.copy_report(version, path)
    return version, pushed


def _manifest(target: targets.Target, version: int) -> dict[str, Any] | None:
    """The manifest for a copy of a version; None if the version has none.

    The copy names the root of the live version, so that this root still may push.
    """
    about, live = target.manifest(version), target.newest()
    who = None if live is None else target.manifest(live).get(PUSHED_BY)
    return {**about, PUSHED_BY: who} if about else None


def _choose(versions: Sequence[Version], wanted: int | None, to: str) -> Version:
    live = next((each for each in versions if each.live), None)
    others = [each for each in versions if live and each.origin != live.origin]
    if wanted is None:
        earlier = [each for each in others if live and each.version < live.origin]
        if not earlier:
            later = ", ".join(str(each.version) for each in others)
            raise BadInputError(
                f"{to} has no version before the one that is live",
                key="strategos rollback",
                remedy=f"Name another version: {later}." if later else "",
            )
        return earlier[0]
    matching = [each for each in versions if each.version == wanted]
    if not matching or matching[0] not in others:
        known = ", ".join(str(each.version) for each in others) or "none"
        raise BadInputError(
            "this version is live already" if matching else f"{to} has no such version",
            key="strategos rollback",
            received=str(wanted),
            expected=known,
        )
    return matching[0]

"""The interface of a notification.

Usage, in a package with the entry point `pager = "package.module:Pager"` in the group
`strategos.notifications`, for `notify.plugins: {pager: {service: flights}}`:

    class Pager(Notification):
        settings = PagerSettings

        def send(self, message: Mapping[str, Any], to: Recipient) -> None:
            pagers.raise_alarm(to.settings["service"], message["outcome"])
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclasses.dataclass(frozen=True)
class Recipient:
    """The recipient of notifications about runs.

    Attributes:
      settings: The settings in `notify`, with the defaults that the plug-in declares.
      folder: Folder of the YAML.
      timeout: Seconds that sending may take.
    """

    settings: Mapping[str, Any]
    folder: Path
    timeout: float


class Notification(abc.ABC):
    """One way to report how a run ended.

    Attributes:
      settings: The pydantic model of the plug-in's settings; None for no settings.
    """

    settings: ClassVar[type[BaseModel] | None] = None

    def check(self, to: Recipient) -> None:
        """Rejects, before a run, settings that cannot work after it.

        Args:
          to: The recipient.

        Raises:
          UserError: This machine cannot send the notification, e.g. a program is
            missing.
        """
        del to  # all are accepted by default

    @abc.abstractmethod
    def send(self, message: Mapping[str, Any], to: Recipient) -> None:
        """Reports how a run ended. An error is only reported: the run has ended.

        Args:
          message: JSON-able values of `pipeline`, `run_id`, `outcome`, `reason`,
            `error`, `metrics`, `pushed`, `canary` and `log`.
          to: The recipient.

        Raises:
          Exception: Nothing was sent, for the reason in its message.
        """

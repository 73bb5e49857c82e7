"""Notes how runs end, in a file beside the YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from strategos import Notification


class LedgerSettings(BaseModel, extra="forbid"):
    """Settings of `notify.plugins.ledger`."""

    file: str
    mark: str = "run"


class Ledger(Notification):
    """Appends a line to a file."""

    settings = LedgerSettings

    def send(self, message: Mapping[str, Any], to: Any) -> None:
        line = {"mark": to.settings["mark"], **message}
        with open(to.folder / to.settings["file"], "a") as file:
            file.write(json.dumps(line) + "\n")

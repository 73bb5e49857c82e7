"""Errors are data: problem, place, received and allowed values, and a remedy.

One type, from the YAML loader to a failed node, and one printer: `str(error)`. No code
parses a message. An error crosses processes as `to_json()` and is read by `from_json`.
"""

from __future__ import annotations

import enum
import os
import pickle
import re
import signal
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar


class ExitCode(enum.IntEnum):
    """How a process of Strategos ended."""

    DONE = 0
    """Finished; the model is blessed, where one was evaluated."""
    FAILED = 1
    BAD_INPUT = 2
    """Rejected before any node ran."""
    STOPPED = 3
    """Not blessed, or stopped by a gate."""
    INTERRUPTED = 128 + signal.SIGINT
    PREEMPTED = 128 + signal.SIGTERM
    """Received SIGTERM, and saved its state."""


@dataclass(frozen=True)
class Place:
    """A place in an error: a file with line and column, a flag, or a process."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(p) for p in (self.source, self.line, self.column) if p)

    @property
    def origin(self) -> str:
        """The short form: `pipeline.yaml:12`, `--set`."""
        if not self.line:
            return self.source.split(" ")[0]
        return f"{os.path.basename(self.source)}:{self.line}"


_Value = TypeVar("_Value")


def required(value: _Value | None) -> _Value:
    """A value that may be missing in general, and never where this is called."""
    assert value is not None
    return value


class UserError(Exception):
    """A problem that the user can solve; shown without a traceback.

        raise UserError(
            "no GPU is visible",
            key="trainer.distribution.devices",
            received="2",
            remedy="Use fewer.",
        )

    prints `trainer.distribution.devices: received 2; no GPU is visible`, and the
    remedy on a line of its own. A message that is complete by itself needs no field.

    Args:
      message: The problem, as a sentence that stands alone; without a full stop.
      key: The setting by its path, e.g. `trainer.epochs`.
      place: File and line, flag, or process.
      received: The value received, as text.
      expected: The values allowed.
      remedy: Instructions for the user, in whole sentences.
      spans: The spans of the data at fault, by number, each with the fingerprint of its
        files; runs that are started by a decision leave them out.
    """

    exit_code = ExitCode.FAILED

    def __init__(
        self,
        message: str = "",
        *,
        key: str = "",
        place: Place | None = None,
        received: str = "",
        expected: str = "",
        remedy: str = "",
        spans: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.message, self.key, self.place = message, key, place
        self.received, self.expected, self.remedy = received, expected, remedy
        self.spans = dict(spans or {})

    def __str__(self) -> str:
        """The form that users read: the headline, and the remedy below it."""
        expected = f"Allowed: {self.expected}." if self.expected else ""
        tail = mask(" ".join(filter(None, (self.remedy, expected))))
        return self.headline + (f"\n    {tail}" if tail else "")

    @property
    def headline(self) -> str:
        """Place, key and problem, without the remedy."""
        received = f"received {self.received}" if self.received else ""
        what = "; ".join(filter(None, (received, self.message)))
        place = str(self.place or "")
        return mask(": ".join(filter(None, (place, self.key, what))))

    def but(self, **changes: Any) -> UserError:
        """A copy of the same class with other values in some fields."""
        return type(self)(**{**_fields(self), **changes})

    def of(self, process: str) -> UserError:
        """A copy with the name of the process that raised it prepended to its place."""
        if self.place is None:
            return self.but(place=Place(process))
        source = f"{process}: {self.place.source}"
        return self.but(place=replace(self.place, source=source))

    def to_json(self) -> dict[str, Any]:
        """The class and all fields that are not empty, as JSON-able values."""
        kind = next(c for c in type(self).__mro__ if c.__module__ == __name__)
        fields = {name: value for name, value in _fields(self).items() if value}
        if self.place is not None:
            fields["place"] = asdict(self.place)
        return {"type": kind.__name__, **fields}


class BadInputError(UserError):
    """Refused before any node ran: a bad setting, a missing file."""

    exit_code = ExitCode.BAD_INPUT


def require_extra(module: str, extra: str, key: str, package: str) -> None:
    """Rejects an option where the package of an extra is missing.

    Args:
      module: The module that is imported.
      extra: The extra of Strategos that installs it.
      key: The option that needs it.
      package: The package, for people.

    Raises:
      BadInputError: It is not installed.
    """
    from importlib import util

    if util.find_spec(module) is None:
        raise BadInputError(
            f"{package} is not installed",
            key=key,
            remedy=f"Install it: pip install 'strategos[{extra}]'.",
        )


class GateStoppedError(UserError):
    """A gate stopped the run: the data or the model did not pass its checks."""

    exit_code = ExitCode.STOPPED


class InterruptedRunError(UserError):
    """Ctrl-C or SIGTERM while an executor was at work."""

    exit_code = ExitCode.INTERRUPTED


class PassingError(UserError):
    """A reason that may pass by itself: a full disk, a server that does not answer.

    `run.retries` starts the node again. Neither the settings nor the user's code cause
    it.
    """


def from_json(described: Mapping[str, Any]) -> UserError:
    """The error that `to_json` described, of the same class."""
    fields = dict(described)
    kind = KINDS.get(fields.pop("type"), UserError)
    place = fields.pop("place", None)
    if place:
        line, column = int(place.get("line", 0)), int(place.get("column", 0))
        fields["place"] = Place(place["source"], line, column)
    return kind(**fields)


def packed(error: Exception) -> tuple[Exception, str]:
    """A picklable form of an exception, with its traceback as text.

    Args:
      error: As caught. An exception that cannot be pickled becomes a RuntimeError with
        the name of its class and its message.
    """
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return error, text


def unpacked(error: Exception, text: str) -> Exception:
    """The exception of another process, caused by its traceback there.

    Args:
      error: From `packed`.
      text: From `packed`.
    """
    error.__cause__ = _OtherTraceback(text)
    return error


class _OtherTraceback(Exception):
    """Shows where another process raised an exception."""


def first_line(text: object) -> str:
    """The first line of a message or an error, "" for None."""
    return "" if text is None else str(text).strip().partition("\n")[0]


def mask(text: str) -> str:
    """`text` without the passwords of the URLs in it."""
    text = re.sub(r"(\w+://[^:/@\s]*):\S*@", r"\1:****@", text)
    return re.sub(r"([?&](?:password|passwd|pwd)=)[^&\s\"]+", r"\1****", text)


def _fields(error: UserError) -> dict[str, Any]:
    names = ("message", "key", "place", "received", "expected", "remedy", "spans")
    return {name: getattr(error, name) for name in names}


KINDS = {
    kind.__name__: kind
    for kind in (
        *(UserError, BadInputError, GateStoppedError, InterruptedRunError),
        PassingError,
    )
}
"""The classes that keep their identity between processes, by name."""

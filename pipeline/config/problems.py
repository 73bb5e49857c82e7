"""Problems with the settings: what, where, and what to do, all of them at once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from strategos.components.errors import BadInputError
from strategos.components.wording import nearest
from strategos.pipeline.config import introspect

_SHOWN = 60
_NAMES = 12
_REFUSED = "refused"


@dataclass(frozen=True)
class Place:
    """Where something stands: a file with line and column, or a command-line flag."""

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


@dataclass(frozen=True)
class Problem:
    """One thing to correct.

    Attributes:
      where: The place in a file, or the flag.
      key: The path of the key, such as `trainer.epochs`; may be empty.
      message: What is wrong, with what was received.
      allowed: What is allowed there.
      remedy: What to do.
    """

    where: Place
    key: str
    message: str
    allowed: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        head = ": ".join(filter(None, (str(self.where), self.key, self.message)))
        allowed = f"Allowed: {self.allowed}." if self.allowed else ""
        tail = " ".join(filter(None, (self.remedy, allowed)))
        return mask(head + (f"\n    {tail}" if tail else ""))


class ConfigError(BadInputError):
    """Settings that cannot be used; `problems` holds every one that was found."""

    def __init__(self, problems: Sequence[Problem], about: str = "the settings"):
        self.problems = list(problems)
        count = len(self.problems)
        title = f"{count} problems in {about}:\n" if count > 1 else ""
        super().__init__(title + "\n".join(map(str, self.problems)))


def shown(path: str | Path) -> str:
    """`path` from the current folder where it lies below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def listed(names: Sequence[str]) -> str:
    """`names` with commas between them; the first dozen of many."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return (", ".join(names[:_NAMES]) + more) or "none"


def mask(text: str) -> str:
    """`text` without the passwords of the URLs in it."""
    text = re.sub(r"(\w+://[^:/@\s]*):\S*@", r"\1:****@", text)
    return re.sub(r"([?&](?:password|passwd|pwd)=)[^&\s\"]+", r"\1****", text)


def refuse(message: str, *, allowed: str = "", remedy: str = "") -> PydanticCustomError:
    """An error for a validator to raise, in the form that `from_pydantic` reads."""
    parts = {"message": message, "allowed": allowed, "remedy": remedy}
    return PydanticCustomError(_REFUSED, "{message}", parts)


def refuse_at(
    loc: Sequence[str | int], message: str, *, allowed: str = "", remedy: str = ""
) -> InitErrorDetails:
    """An error on the key `loc` below the model whose validator finds it."""
    error = refuse(message, allowed=allowed, remedy=remedy)
    return InitErrorDetails(type=error, loc=tuple(loc), input=None)


def raise_all(errors: Sequence[InitErrorDetails]) -> NoReturn:
    """Raises `errors` together, from inside a model's validator."""
    raise ValidationError.from_exception_data("settings", list(errors))


def received(value: Any) -> str:
    """`value` in the terms of YAML, with its kind."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true or false)"
    kinds = {str: "text", int: "a whole number", float: "a number", list: "a list"}
    kind = next((kinds[t] for t in kinds if isinstance(value, t)), "a mapping")
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return f"{mask(text)} ({kind})"


def from_pydantic(
    error: ValidationError,
    model: type[BaseModel],
    locate: Callable[[tuple[str | int, ...], bool], Place],
) -> list[Problem]:
    """The problems that `error` holds.

    Args:
      error: What the validation of `model` raised.
      model: The top-level model.
      locate: From a location and whether its key (not its value) is meant to
        its place.
    """
    errors = error.errors(include_url=False)
    unknown = [details["loc"] for details in errors if _is_unknown(details)]
    problems = []
    for details in errors:
        loc = tuple(details["loc"])
        where = locate(loc, _is_unknown(details))
        if _is_unknown(details):
            problems.append(_unknown_key(where, loc, model))
        elif details["type"] == "missing":
            if not any(_meant(loc, other, model) for other in unknown):
                problems.append(_missing(where, loc, model))
        elif details["type"] == _REFUSED:
            key = ".".join(map(str, loc))
            problems.append(Problem(where, key, **details["ctx"]))
        else:
            problems.append(_wrong_value(where, loc, details, model))
    return problems


def _is_unknown(details: Any) -> bool:
    return details["type"] == "extra_forbidden"


def _meant(missing: tuple, unknown: tuple, model: type[BaseModel]) -> bool:
    """Whether the unknown key is the missing one with a slip in it."""
    known = introspect.fields(introspect.model_at(model, unknown[:-1]))
    near = nearest(str(unknown[-1]), known)
    return (*unknown[:-1], near) == missing


def _unknown_key(where: Place, loc: tuple, model: type[BaseModel]) -> Problem:
    name = str(loc[-1])
    known = list(introspect.fields(introspect.model_at(model, loc[:-1])))
    elsewhere = [
        ".".join(key.path)
        for key in introspect.keys(model)
        if key.path[-1] == name and "NAME" not in key.path
    ]
    near = nearest(name, known)
    if near:
        remedy = f"Did you mean `{near}`?"
    elif elsewhere:
        remedy = f"There is `{elsewhere[0]}`; did you mean that?"
    else:
        remedy = "Remove it."
    here = ".".join(map(str, loc))
    return Problem(where, here, "unknown key", ", ".join(known), remedy)


def _missing(where: Place, loc: tuple, model: type[BaseModel]) -> Problem:
    annotation = introspect.at(model, loc)
    return Problem(
        where,
        ".".join(map(str, loc)),
        "this key is required and missing",
        introspect.describe(annotation),
        f"Add `{loc[-1]}:`"
        + (f" under `{'.'.join(loc[:-1])}`." * bool(loc[1:]) or "."),
    )


def _wrong_value(where: Place, loc: tuple, details: Any, model: Any) -> Problem:
    value = details["input"]
    annotation = introspect.at(model, loc)
    allowed = introspect.describe(annotation) if annotation else details["msg"]
    remedy = ""
    if isinstance(value, str):
        near = details["type"] == "literal_error" and nearest(
            value, re.findall(r"'([^']*)'", details["ctx"]["expected"])
        )
        remedy = f"Did you mean `{near}`?" if near else ""
        if allowed.startswith("a list"):
            remedy = f"Write `[{value}]`."
    key = ".".join(map(str, loc))
    return Problem(where, key, f"received {received(value)}", allowed, remedy)

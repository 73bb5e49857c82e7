"""Problems with the settings: what, where, and what to do, all of them at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from strategos.components.errors import BadInputError
from strategos.pipeline import surface

_SHOWN = 60
_REFUSED = "refused"


@dataclass(frozen=True)
class Problem:
    """One thing to correct.

    Attributes:
      where: `file:line:column` or `--set key=value`.
      key: The path of the key, such as `trainer.epochs`; may be empty.
      message: What is wrong, with what was received.
      allowed: What is allowed there.
      remedy: What to do.
    """

    where: str
    key: str
    message: str
    allowed: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        head = ": ".join(filter(None, (self.where, self.key, self.message)))
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
    return f"{text} ({kind})"


def from_pydantic(
    error: ValidationError,
    model: type[BaseModel],
    locate: Callable[[tuple[str | int, ...], bool], str],
) -> list[Problem]:
    """The problems that `error` holds.

    Args:
      error: What the validation of `model` raised.
      model: The top-level model.
      locate: From a location and whether its key (not its value) is meant to
        `file:line:column`.
    """
    problems = []
    for details in error.errors(include_url=False):
        loc = tuple(part for part in details["loc"] if part != "[key]")
        unknown = details["type"] == "extra_forbidden"
        where = locate(loc, unknown)
        key = ".".join(map(str, loc))
        if unknown:
            problems.append(_unknown_key(where, loc, model))
        elif details["type"] == "missing":
            problems.append(_missing(where, loc, model))
        elif details["type"] == _REFUSED:
            problems.append(Problem(where, key, **details["ctx"]))
        else:
            problems.append(_wrong_value(where, loc, details, model))
    return problems


def _unknown_key(where: str, loc: tuple, model: type[BaseModel]) -> Problem:
    name = str(loc[-1])
    known = list(surface.fields(surface.model_at(model, loc[:-1])))
    elsewhere = [
        ".".join(key.path)
        for key in surface.keys(model)
        if key.path[-1] == name and "NAME" not in key.path
    ]
    near = surface.nearest(name, known)
    if near:
        remedy = f"Did you mean `{near}`?"
    elif elsewhere:
        remedy = f"`{name}` belongs under `{elsewhere[0]}`."
    else:
        remedy = "Remove it."
    here = ".".join(map(str, loc))
    return Problem(where, here, "unknown key", ", ".join(known), remedy)


def _missing(where: str, loc: tuple, model: type[BaseModel]) -> Problem:
    annotation = surface.at(model, loc)
    return Problem(
        where,
        ".".join(map(str, loc)),
        "this key is required and missing",
        surface.describe(annotation),
        f"Add `{loc[-1]}:`"
        + (f" under `{'.'.join(loc[:-1])}`." * bool(loc[1:]) or "."),
    )


def _wrong_value(where: str, loc: tuple, details: Any, model: Any) -> Problem:
    value = details["input"]
    annotation = surface.at(model, loc)
    allowed = surface.describe(annotation) if annotation else details["msg"]
    remedy = ""
    if isinstance(value, str):
        near = details["type"] == "literal_error" and surface.nearest(
            value, re.findall(r"'([^']*)'", details["ctx"]["expected"])
        )
        remedy = f"Did you mean `{near}`?" if near else ""
        if allowed.startswith("a list"):
            remedy = f"Write `[{value}]`."
    key = ".".join(map(str, loc))
    return Problem(where, key, f"received {received(value)}", allowed, remedy)

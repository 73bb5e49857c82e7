"""Problems with the settings: their wording, and reporting all of them at once."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from strategos.components.errors import BadInputError, Place, UserError, mask
from strategos.components.files.filesystems import short
from strategos.components.wording import cut, nearest
from strategos.pipeline.config import introspect

_SHOWN = 60
_REJECTED = "rejected"
_SYNONYMS = {"min": "at_least", "minimum": "at_least", "threshold": "at_least"}
_SYNONYMS |= {"max": "at_most", "maximum": "at_most"}
_BECAUSE = "because"
_NOTHING = "nothing"  # in place of a required text
_NUMERAL = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
_REPAIRING = "repairing"  # key of a validation context
_ROUNDS = 20  # of repairs; each removes or adds a value


class ConfigError(BadInputError):
    """Invalid settings.

    Attributes:
      problems: Every problem that was found.
      repaired: The settings without the invalid ones, from `repaired`, or None.
    """

    def __init__(
        self,
        problems: Sequence[UserError],
        about: str = "the settings",
        repaired: Any = None,
    ):
        """Joins the problems into one message.

        Args:
          problems: At least one.
          about: The file or settings that the title names, if there are several.
          repaired: The settings without the invalid ones, or None.
        """
        self.problems, self.repaired = list(problems), repaired
        count = len(self.problems)
        title = f"{count} problems in {about}:\n" if count > 1 else ""
        self._about = about
        super().__init__(title + "\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Keeps the problems in another process, but not `repaired`."""
        return type(self), (self.problems, self._about)


def shown(path: str | Path) -> str:
    """`path` relative to the current folder, if it is inside; URLs as they are."""
    return short(str(path))


def reject(message: str = "", **fields: str) -> PydanticCustomError:
    """Makes an error for a validator to raise, in the form that `from_pydantic` reads.

    Args:
      message: The error, e.g. "has no effect".
      **fields: `received`, `expected` and `remedy` of a `UserError`; `because`, the key
        path of the setting that needs a section which does not exist.
    """
    return PydanticCustomError(_REJECTED, "{message}", {"message": message, **fields})


def reject_at(
    loc: Sequence[str | int], message: str = "", **fields: str
) -> InitErrorDetails:
    """Makes an error for `raise_all`, about one key of a model.

    Args:
      loc: Path of the key below the model of the calling validator.
      message: The error, e.g. "has no effect".
      **fields: `received`, `expected` and `remedy` of a `UserError`.
    """
    error = reject(message, **fields)
    return InitErrorDetails(type=error, loc=tuple(loc), input=None)


def raise_all(errors: Sequence[InitErrorDetails]) -> NoReturn:
    """Raises `errors` together, from inside a model's validator.

    Raises:
      ValidationError: Always.
    """
    raise ValidationError.from_exception_data("settings", list(errors))


def received(value: Any) -> str:
    """Formats `value` for an error, in the terms of YAML: `"x" (text)`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true or false)"
    kinds = {str: "text", int: "a whole number", float: "a number", list: "a list"}
    kind = next((kinds[t] for t in kinds if isinstance(value, t)), "a mapping")
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"{mask(cut(text, _SHOWN))} ({kind})"


def from_pydantic(
    error: ValidationError,
    model: type[BaseModel],
    locate: Callable[[tuple[str | int, ...], bool], Place],
) -> list[UserError]:
    """Converts pydantic's errors to errors for users.

    Args:
      error: The error of the validation of `model`.
      model: The top-level model.
      locate: Maps a location to its place in a file; the second argument selects the
        place of the key instead of the value.
    """
    errors = error.errors(include_url=False)
    unknown = [details["loc"] for details in errors if _is_unknown(details)]
    problems = []
    for details in errors:
        loc = tuple(details["loc"])
        of_key = _is_unknown(details) or loc[-1:] == (introspect.KEY,)
        where = locate(loc, of_key)
        if _is_unknown(details):
            problems.append(_unknown_key(where, loc, model))
        elif details["type"] == "missing":
            if not any(_meant(loc, other, model) for other in unknown):
                problems.append(_missing(where, loc, model))
        elif details["type"] == _REJECTED:
            context = {k: v for k, v in details["ctx"].items() if k != _BECAUSE}
            problems.append(BadInputError(key=_dotted(loc), place=where, **context))
        else:
            problems.append(_wrong_value(where, loc, details, model))
    return problems


def _is_unknown(details: Any) -> bool:
    return details["type"] == "extra_forbidden"


def _meant(missing: tuple, unknown: tuple, model: type[BaseModel]) -> bool:
    """Whether the unknown key is a misspelling of the missing one."""
    known = introspect.fields(introspect.model_at(model, unknown[:-1]))
    near = nearest(str(unknown[-1]), known)
    return (*unknown[:-1], near) == missing


def _unknown_key(where: Place, loc: tuple, model: type[BaseModel]) -> UserError:
    name = str(loc[-1])
    known = list(introspect.fields(introspect.model_at(model, loc[:-1])))
    elsewhere = [
        ".".join(key.path)
        for key in introspect.keys(model)
        if key.path[-1] == name and "NAME" not in key.path
    ]
    near = _SYNONYMS.get(name) if _SYNONYMS.get(name) in known else None
    near = near or nearest(name, known)
    if near:
        remedy = f"Did you mean `{near}`?"
    elif elsewhere:
        remedy = f"Did you mean `{elsewhere[0]}`?"
    else:
        remedy = "Remove it."
    return BadInputError(
        "unknown key",
        key=_dotted(loc),
        place=where,
        expected=", ".join(known),
        remedy=remedy,
    )


def _missing(where: Place, loc: tuple, model: type[BaseModel]) -> UserError:
    annotation = introspect.at(model, loc)
    return BadInputError(
        "the required key is missing",
        key=_dotted(loc),
        place=where,
        expected=introspect.describe(annotation),
        remedy=f"Add `{loc[-1]}:`"
        + (f" under `{'.'.join(loc[:-1])}`." * bool(loc[1:]) or "."),
    )


def _wrong_value(where: Place, loc: tuple, details: Any, model: Any) -> UserError:
    value = details["input"]
    annotation = introspect.at(model, loc)
    allowed = introspect.describe(annotation) if annotation else details["msg"]
    remedy = ""
    if allowed.startswith(("text", "a column")) and isinstance(value, int | float):
        remedy = f"Put it in quotes: '{json.dumps(value)}'."
    elif loc[:2] == ("data", "split") and isinstance(value, float):
        remedy = "Shares are whole numbers, such as `train: 8, eval: 2`."
    if isinstance(value, str):
        near = details["type"] == "literal_error" and nearest(
            value, re.findall(r"'([^']*)'", details["ctx"]["expected"])
        )
        remedy = f"Did you mean `{near}`?" if near else ""
        if allowed.startswith("a list"):
            remedy = f"Write `[{value}]`."
        elif "number" in allowed and _NUMERAL.fullmatch(value):
            remedy = f"Write {value} without quotes."
    return BadInputError(
        key=_dotted(loc),
        place=where,
        received=received(value),
        expected=allowed,
        remedy=remedy,
    )


def _dotted(loc: tuple) -> str:
    return ".".join(str(part) for part in loc if part != introspect.KEY)


@dataclasses.dataclass(frozen=True)
class Repaired:
    """A valid config that lacks some values.

    Attributes:
      config: The config.
      left_out: The key paths of the values that it lacks, e.g. `trainer.epochs`.
    """

    config: Any
    left_out: frozenset[str]

    def concerns(self, key: str) -> bool:
        """Whether a problem with `key` may only follow from a value left out.

        Args:
          key: E.g. `trainer.epochs`.
        """
        return any(
            f"{key}.".startswith(f"{path}.") or f"{path}.".startswith(f"{key}.")
            for path in self.left_out
        )


def repaired(
    settings: Mapping[str, Any],
    error: ValidationError,
    model: type[BaseModel],
    context: Any,
) -> Repaired | None:
    """Returns the config without the values at fault, so that files can be checked.

    An invalid value is left out, and a missing required one is replaced by a text that
    names nothing: a problem of these keys is known already.

    Args:
      settings: The settings that `model` rejected.
      error: The error that it raised.
      model: The top-level model.
      context: The context of the validation.

    Returns:
      The config; None if the rest is none.
    """
    rest, left_out = copy.deepcopy(dict(settings)), set()
    context = {**(context or {}), _REPAIRING: True}
    for _ in range(_ROUNDS):
        # From the end, as the indices of a list move up.
        for each in sorted(error.errors(), key=lambda e: str(e["loc"]), reverse=True):
            path = tuple(part for part in each["loc"] if part != introspect.KEY)
            left_out.add(".".join(map(str, path)))
            because = each.get("ctx", {}).get(_BECAUSE)
            if each["type"] == "missing" and _fill(rest, path, model):
                continue
            _remove(rest, because.split(".") if because else path)
        try:
            config = model.model_validate(rest, context=context)
        except ValidationError as next_error:
            error = next_error
        else:
            return Repaired(config, frozenset(left_out))
    return None


def is_repairing(context: Any) -> bool:
    """Whether a validation only completes a config with known problems.

    A validator of names then accepts any name, as one may stand for a missing value.

    Args:
      context: The validation's, or None.
    """
    return bool(context) and _REPAIRING in context


def _fill(rest: Any, path: Sequence[Any], model: type[BaseModel]) -> bool:
    """Gives a missing key a value; returns False if no text nor list can be one."""
    annotation = introspect.at(model, path)
    value: Any = {} if introspect.model_at(model, path) else _NOTHING
    described = introspect.describe(annotation) if annotation else ""
    if value and described.startswith(("a mapping", "a whole", "a number")):
        return False
    if described.startswith("a list"):
        value = [value]
    for part in path[:-1]:
        rest = rest[part]
    rest[path[-1]] = value
    return True


def _remove(rest: Any, path: Sequence[Any]) -> None:
    """Removes the deepest value on `path` that exists."""
    for number, part in enumerate(path):
        try:
            inner = rest[part]
        except (KeyError, IndexError, TypeError):
            return
        is_last = number == len(path) - 1
        if is_last or not _has(inner, path[number + 1]):
            del rest[part]
            return
        rest = inner


def _has(value: Any, part: Any) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)

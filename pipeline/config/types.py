"""The types of single values in the YAML, with their validators."""

from __future__ import annotations

import datetime
import math
import os
import re
import unicodedata
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails

from strategos.components.errors import mask
from strategos.components.files.filesystems import is_remote
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.config.introspect import Allowed, PathMark
from strategos.pipeline.config.problems import raise_all, received, reject

PASSWORD_VARIABLE = "STRATEGOS_METADATA_PASSWORD"
"""The environment variable that holds the password of `run.metadata`."""

SERVERS = "mysql://USER@HOST:PORT/DATABASE or postgresql://USER@HOST:PORT/DATABASE"
"""The forms of `run.metadata` that name a server."""


LARGEST = 2**63 - 1
"""The largest whole number that TensorFlow and ML Metadata hold."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_CENTURY = 36500 * _SECONDS["d"]

LATEST = "latest"
"""Stands in place of a path for the newest pushed model."""


class Section(BaseModel):
    """A section of the YAML: frozen, without unknown keys, without conversions.

    A subclass whose keys may contradict each other overrides `_problems`.
    """

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    @model_validator(mode="after")
    def _agrees(self) -> Section:
        if problems := list(self._problems()):
            raise_all(problems)
        return self

    def _problems(self) -> Iterator[InitErrorDetails]:
        """Yields an error for each valid key that contradicts another one."""
        return iter(())


def absolute(path: str, folder: str | Path) -> str:
    """Makes `path` absolute, with `..` and `~` resolved; URLs stay as they are.

    Args:
      path: A path or a URL.
      folder: The folder to which a relative path is relative.
    """
    if is_remote(path):
        return path
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def main_file(context: Any) -> Path:
    """The path of the main YAML; `pipeline.yaml` in this folder by default.

    Args:
      context: The loader's validation context, with the key `path`; or None.
    """
    return (context or {}).get("path") or Path.cwd() / MAIN_FILE


def default_name(name: str, info: ValidationInfo) -> str:
    """Returns `name`, or the name of the YAML's folder if `name` is empty.

    Letters of a folder's name lose their accents; all characters but `a` to `z` and
    digits become `-`: the folder `Flüge_2013` gives `fluge-2013`.

    Args:
      name: The value of the key; "" if it is not set.
      info: pydantic's; its context names the YAML.
    """
    return name or name_after(main_file(info.context).parent.name)


def name_after(folder: str) -> str:
    """A name for a pipeline: see `default_name`.

    Args:
      folder: The name of a folder or a file.
    """
    letters = unicodedata.normalize("NFKD", folder.casefold())  # `ü`: `u` and its dots
    plain = "".join(each for each in letters if not unicodedata.combining(each))
    words = re.findall("[a-z0-9]+", plain)
    slug = "-".join(words).lstrip("0123456789-")[:63].strip("-")
    return slug or "pipeline"


def not_empty(text: str) -> str:
    """Returns `text`; rejects one of blanks alone."""
    if not text.strip():
        raise reject("received an empty text")
    return text


def _anchored(path: str, info: ValidationInfo) -> str:
    if not path.strip():
        raise reject("received an empty path", remedy="Name a file or a folder.")
    if re.search(r"\$(\w|\{\w)", path):
        raise reject(
            received=received(path),
            expected="a path without variables of the environment",
            remedy="Write it out, or give it by `--set` in the shell.",
        )
    if re.match(r"(gs|s3|https?|hdfs):/?[^/]", path):
        raise reject(
            received=received(path),
            expected="a path, or a URL with two slashes, such as s3://BUCKET/FOLDER",
        )
    return absolute(path, main_file(info.context).parent)


def _latest_or_anchored(path: str, info: ValidationInfo) -> str:
    return path if path == LATEST else _anchored(path, info)


def _in_64_bits(number: int) -> int:
    if number > LARGEST:
        raise reject(received=received(number), expected=f"at most {LARGEST}")
    return number


def _is_filling(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise reject(received=received(value), expected="a text or a number")
    return value if isinstance(value, str | float) else _in_64_bits(value)


def _in_a_century(text: str) -> str:
    """Rejects durations that overflow a timer, and larger numbers of steps."""
    if text == "auto":
        return text
    ((number, unit),) = re.findall("^([0-9]+) ?([a-z]+)$", text)
    limit = _CENTURY // _SECONDS[unit] if unit in _SECONDS else LARGEST
    if len(number) > len(str(limit)) or int(number) > limit:
        largest = text.replace(number, str(limit))
        raise reject(received=received(text), expected=f"at most {largest}")
    return text


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def ordered(spans: str) -> str:
    """Returns the range `spans`, e.g. 10..20.

    Raises:
      PydanticCustomError: The range ends before it starts.
    """
    first, _, last = spans.partition("..")
    if last and int(last) < int(first):
        raise reject(
            "the range ends before it starts",
            received=received(spans),
            remedy=f"Write `{last}..{first}`.",
        )
    return spans


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `values`, if JSON can carry each number in it.

    Raises:
      PydanticCustomError: A number is infinite or NaN.
    """
    for name, value in values.items():
        for leaf in _leaves(value):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                message = f"`{name}` holds {leaf}, which JSON cannot carry"
                raise reject(message, expected="finite numbers")
    return values


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _database(url: str) -> str:
    if url == "sqlite":
        return url
    allowed = f"sqlite, {SERVERS}"
    if mask(url) != url:
        raise reject(
            "a password must not be written in a file or on the command line",
            expected=allowed,
            remedy=f"Remove it from the URL and set {PASSWORD_VARIABLE} in the "
            "environment.",
        )
    try:
        parts = urlsplit(url)
        complete = parts.hostname and parts.path.strip("/") and parts.port != 0
    except ValueError:
        raise reject(received=received(url), expected=allowed) from None
    known = parts.scheme in ("mysql", "postgresql")
    if not (known and complete) or parts.query or parts.fragment:
        raise reject(received=received(url), expected=allowed)
    return url


def _cron(expression: str) -> str:
    """Rejects a cron expression that no time fits, e.g. February 30.

    A sixth field for seconds, and names such as `@daily`, are rejected too.
    """
    from cronsim import CronSim, CronSimError

    expected = "five fields of cron, such as 30 2 * * 1-5"
    if len(expression.split()) != 5:
        raise reject(received=received(expression), expected=expected)
    try:
        next(CronSim(expression, datetime.datetime(2000, 1, 1)))
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it never fires"
        raise reject(f"{why} in `{expression}`", expected=expected) from None
    return expression


def _time_zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        expected = "a name of the IANA time zone database, such as Europe/Berlin"
        raise reject(received=received(name), expected=expected) from None
    return name


Text = Annotated[str, Allowed("text"), AfterValidator(not_empty)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
TextOrCount = Annotated[
    str,
    BeforeValidator(_number_as_text),
    Field(json_schema_extra={"type": ["string", "integer"]}),
]
"""A text that YAML reads as a whole number if it is not in quotes, such as `3`."""
Spellings = Annotated[
    tuple[
        Annotated[TextOrCount, Allowed('texts or whole numbers; `"null"` in quotes')],
        ...,
    ],
    Field(strict=False),
]
Filling = Annotated[
    Any,
    Allowed("a text or a number"),
    AfterValidator(_is_filling),
    Field(json_schema_extra={"type": ["string", "number"]}),
]
Positive = Annotated[int, Field(ge=1), AfterValidator(_in_64_bits)]
NotNegative = Annotated[int, Field(ge=0), AfterValidator(_in_64_bits)]
PathText = Annotated[str, PathMark(), Allowed("a path"), AfterValidator(_anchored)]
ModelPath = Annotated[
    str,
    PathMark(words=(LATEST,)),
    Allowed("latest or a path"),
    AfterValidator(_latest_or_anchored),
]
Name = Annotated[
    str,
    StringConstraints(pattern=r"^([a-z][a-z0-9-]{0,62})?$"),
    Allowed("lower-case letters, digits and `-`, first a letter, at most 63"),
    AfterValidator(default_name),
]
Module = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"),
    Allowed("the name of a module beside the YAML, such as `model`"),
]
Function = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?$"),
    Allowed("`module` or `module:function`"),
]
Spans = Annotated[
    TextOrCount,
    StringConstraints(pattern=r"^(all|latest( [1-9][0-9]*)?|[0-9]+(\.\.[0-9]*)?)$"),
    Allowed(
        "all, latest, a window such as latest 6, a number such as 3, or a range such "
        "as 1..6 or 3.."
    ),
    AfterValidator(ordered),
]
CountOrNever = Annotated[
    TextOrCount,
    StringConstraints(pattern=r"^([1-9][0-9]{0,17}|never)$"),
    Allowed("a whole number, at least 1, or never"),
]
Duration = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9][0-9]*[smhdw]$"),
    Allowed("a duration such as 30s, 12h or 7d"),
    AfterValidator(_in_a_century),
]
Cron = Annotated[
    str,
    Allowed("five fields of cron, such as 30 2 * * 1-5"),
    AfterValidator(_cron),
]
TimeZone = Annotated[
    str, Allowed("a time zone, such as Europe/Berlin"), AfterValidator(_time_zone)
]
Size = Annotated[
    TextOrCount,
    StringConstraints(pattern=r"^[0-9]{1,18}(\.[0-9]{1,18})? ?([KMGT]i?)?B?$"),
    Allowed("bytes, such as 1GB, 64MiB or 4096"),
]
Rate = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{0,18}\.?[0-9]{1,18} ?[KMGT]bit$"),
    Allowed("bits a second, such as 10Gbit or 100Mbit"),
]
Interval = Annotated[
    str,
    StringConstraints(pattern=r"^(auto|[1-9][0-9]*[smh]|[1-9][0-9]* steps?)$"),
    Allowed("a duration such as 30s or 5m, a number of steps such as 200 steps, auto"),
    AfterValidator(_in_a_century),
]
EverySteps = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9][0-9]* steps?$"),
    Allowed("a number of steps such as 500 steps"),
    AfterValidator(_in_a_century),
]
Metric = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][\w./-]*$"),
    Allowed("the name of a metric, such as val_loss or val_auc"),
]
Database = Annotated[str, Allowed(f"sqlite, {SERVERS}"), AfterValidator(_database)]
ClassFactors = Annotated[
    dict[
        Annotated[str, BeforeValidator(_number_as_text)], Annotated[float, Field(ge=0)]
    ],
    Field(min_length=1),
]
Hyperparameters = Annotated[dict[str, Any], AfterValidator(finite)]


def seconds(duration: str) -> int:
    """Converts a `Duration` to seconds, e.g. `7d` to 604800."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def size(text: str) -> int:
    """Converts a `Size` such as `64MiB` to bytes; `MB` is 10**6, `MiB` is 2**20."""
    ((number, unit),) = re.findall("^([0-9.]+) ?([KMGT]?i?)B?$", text)
    base = 1024 if unit.endswith("i") else 1000
    return int(float(number) * base ** " KMGT".index(unit[:1] or " "))


def rate(text: str) -> float:
    """Converts a `Rate` such as `10Gbit` to bytes a second."""
    ((number, unit),) = re.findall("^([0-9.]+) ?([KMGT])bit$", text)
    return float(number) * 1000 ** " KMGT".index(unit) / 8


def interval(text: str) -> str:
    """Normalizes an `Interval`: `5m` to `300s`, `1 step` to `1 steps`."""
    if "step" in text:
        return f"{text.split()[0]} steps"
    return text if text == "auto" else f"{seconds(text)}s"

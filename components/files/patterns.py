"""Patterns of data files: globs with the placeholders of TFX's ExampleGen.

`{SPAN}` is a number, `{SPAN:2}` a number of exactly two digits, `{DATE}` a day as
`yyyymmdd` (or `{YYYY}`, `{MM}` and `{DD}`, each anywhere), `{VERSION}` the version of a
span.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence

from strategos.components.errors import BadInputError

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAMED = re.compile(r"(SPAN|VERSION)(?::(.*))?|DATE|YYYY|MM|DD")
_DIGITS = {"DATE": 8, "YYYY": 4, "MM": 2, "DD": 2}
_HELP = "Known placeholders: {SPAN}, {SPAN:2}, {DATE}, {YYYY} {MM} {DD}, {VERSION}."


def fixed_folder(pattern: str) -> str:
    """The folder before any placeholder or wildcard: `/a` of `/a/{SPAN}/*.csv`."""
    fixed = re.split(r"[{*?\[]", pattern, maxsplit=1)[0]
    return os.path.dirname(fixed)


def placeholder(pattern: str) -> str:
    """The placeholder of spans: `SPAN`, `DATE` (in whatever form), or "" for none."""
    named = re.search(r"\{(SPAN|DATE|YYYY)\b", pattern)
    return named[1].replace("YYYY", "DATE") if named else ""


def has_spans(pattern: str) -> bool:
    """Whether something numbers the spans."""
    return bool(placeholder(pattern))


def check(pattern: str) -> None:
    """Rejects a malformed pattern.

    Raises:
      BadInputError: Names all problems of the pattern.
    """
    parts = _PLACEHOLDER.split(pattern)
    problems = [
        f"a brace without its other half in {text!r}"
        for text in parts[::2]
        if "{" in text or "}" in text
    ]
    for part in parts[1::2]:
        named = _NAMED.fullmatch(part)
        if not named:
            problems.append(f"{{{part}}} is not a placeholder. {_HELP}")
        elif named[2] is not None and not re.fullmatch("[1-9][0-9]?", named[2]):
            problems.append(f"the width of {{{part}}} is not a positive number")
    problems += _misused([part.split(":")[0] for part in parts[1::2]])
    if problems:
        message = f"{pattern}: {'; '.join(problems)}"
        raise BadInputError(message, key="data.examples")


def path_of(pattern: str, number: int) -> str:
    """The path of one span's file: `day-20240301.csv` of `day-{DATE}.csv`.

    Args:
      pattern: A pattern without wildcards and `{VERSION}`.
      number: Number of the span; for a pattern with dates, the days since 1970.
    """
    day = datetime.date(1970, 1, 1) + datetime.timedelta(number)
    dated = {"DATE": f"{day:%Y%m%d}", "YYYY": f"{day:%Y}"}
    dated |= {"MM": f"{day:%m}", "DD": f"{day:%d}"}
    parts = _PLACEHOLDER.split(pattern)
    for index in range(1, len(parts), 2):
        spelled = str(number).zfill(_width(parts[index]))
        parts[index] = dated.get(parts[index], spelled)
    return "".join(parts)


def to_glob(pattern: str) -> str:
    """A glob for a pattern or a leading part of it: `day-[0-9]*` for `day-{SPAN}`."""
    globs = _PLACEHOLDER.split(pattern)
    for index in range(1, len(globs), 2):
        digits = _width(globs[index])
        globs[index] = "[0-9]" * digits if digits else "[0-9]*"
    return "".join(globs)


def to_regex(pattern: str) -> re.Pattern[str]:
    """A regular expression for whole paths, with a group for each placeholder."""
    parts = _PLACEHOLDER.split(pattern)
    regexes = [_of_glob(part) for part in parts]
    for index in range(1, len(parts), 2):
        digits = _width(parts[index])
        count = f"{{{digits}}}" if digits else "+"
        regexes[index] = f"(?P<{parts[index].split(':')[0]}>[0-9]{count})"
    return re.compile("".join(regexes))


def _misused(names: Sequence[str]) -> list[str]:
    """Problems of the placeholders of one pattern taken together."""
    problems = [
        f"{{{name}}} occurs twice"
        for name in ("SPAN", "VERSION", *_DIGITS)
        if names.count(name) > 1
    ]
    parted = {"YYYY", "MM", "DD"} & set(names)
    if len(parted) in (1, 2):
        missing = ", ".join(sorted({"YYYY", "MM", "DD"} - parted))
        problems.append(f"a date needs {{YYYY}}, {{MM}} and {{DD}}; missing: {missing}")
    if ("SPAN" in names) + ("DATE" in names) + bool(parted) > 1:
        problems.append("a span is given by {SPAN}, by {DATE} or by {YYYY} {MM} {DD}")
    if set(names) == {"VERSION"}:
        problems.append("{VERSION} needs a span beside it: {SPAN} or {DATE}")
    return problems


def _width(placeholder: str) -> int:
    name, _, width = placeholder.partition(":")
    return int(width or _DIGITS.get(name, 0))


def _of_glob(text: str) -> str:
    """Translates a glob to a regular expression."""
    tokens = re.split(r"(\*\*/|\*|\?|\[!?\]?[^\]]*\])", text)
    special = {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}
    for index, token in enumerate(tokens):
        if index % 2 == 0:
            tokens[index] = re.escape(token)
        elif token in special:
            tokens[index] = special[token]
        else:
            inside = re.sub(r"^\[!", "[^", token.replace("\\", "\\\\"))
            tokens[index] = f"(?!/){inside}"  # a class never matches a separator
    return "".join(tokens)

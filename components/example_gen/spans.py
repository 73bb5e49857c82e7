"""Finds the files of a pattern: spans, their versions, and a fingerprint of the files.

A pattern is a glob with the placeholders of TFX's ExampleGen. `{SPAN}` is a number,
`{SPAN:2}` a number of exactly two digits, `{DATE}` a day as `yyyymmdd` (or `{YYYY}`,
`{MM}` and `{DD}`, each anywhere), `{VERSION}` the version of a span; the newest version
counts. The span of a day has as its number the days since 1 January 1970.
This module needs only the standard library.
"""

from __future__ import annotations

import dataclasses
import datetime
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from strategos.components.errors import BadInputError
from strategos.components.example_gen.sources import SUFFIXES
from strategos.components.files import digests
from strategos.components.wording import abridged, cut

_EPOCH = datetime.date(1970, 1, 1)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAMED = re.compile(r"(SPAN|VERSION)(?::(.*))?|DATE|YYYY|MM|DD")
_DIGITS = {"DATE": 8, "YYYY": 4, "MM": 2, "DD": 2}
_HELP = "Known placeholders: {SPAN}, {SPAN:2}, {DATE}, {YYYY} {MM} {DD}, {VERSION}."
_SHOWN = 8


class NoFilesError(BadInputError):
    """A well-formed pattern that matches no file (yet)."""


@dataclasses.dataclass(frozen=True)
class Span:
    """The files of one span, in its newest version.

    Attributes:
      number: The span's number; 0 if the pattern has no span.
      version: The span's version; None if the pattern has none.
      date: The day as `yyyy-mm-dd`; None if the pattern has no dates.
      files: Paths, sorted.
    """

    number: int
    version: int | None
    date: str | None
    files: tuple[str, ...]


def fixed_folder(pattern: str) -> str:
    """The folder that `pattern` begins with, before any placeholder or wildcard."""
    fixed = re.split(r"[{*?\[]", pattern, maxsplit=1)[0]
    return os.path.dirname(fixed)


def find_spans(pattern: str) -> list[Span]:
    """Finds the newest version of each span that `pattern` matches, by number.

    Args:
      pattern: A glob with placeholders, see this module's docstring. A plain glob is
        one span with number 0.

    Raises:
      NoFilesError: The pattern matches no file.
      BadInputError: The pattern is malformed.
    """
    newest: dict[int, Span] = {}
    for span in find_editions(pattern):  # ascending in version
        newest[span.number] = span
    return list(newest.values())


def find_editions(pattern: str) -> list[Span]:
    """Finds every version of each span, ascending by number and version.

    Args:
      pattern: A glob with placeholders, see this module's docstring.

    Raises:
      NoFilesError: The pattern matches no file.
      BadInputError: The pattern is malformed, or two spans have the same number.
    """
    parts = _parse(pattern)
    found = sorted(glob.glob(_to_glob(parts), recursive=True))
    files = list(filter(os.path.isfile, found))
    _reject_folders(pattern, filter(os.path.isdir, found))
    regex = re.compile(_to_regex(parts))
    _reject_broken_links(filter(regex.fullmatch, found))
    editions: dict[tuple[int, int], list[str]] = {}
    dates: dict[int, str] = {}
    for path in files:
        matched = regex.fullmatch(path)
        if not matched:
            continue
        groups = matched.groupdict()
        number, date = _number(groups, path)
        if date:
            dates[number] = date
        edition = (number, _in_64_bits(groups.get("VERSION") or "-1", path))
        editions.setdefault(edition, []).append(path)
    if not editions:
        raise NoFilesError(
            _nothing_found(pattern),
            key="data.examples",
            remedy="Correct the pattern, or put the data there.",
        )
    for edition, paths in editions.items():
        _reject_overlap(edition, paths, regex)
    return [
        Span(number, None if version < 0 else version, dates.get(number), tuple(paths))
        for (number, version), paths in sorted(editions.items())
    ]


def resolve_spans(pattern: str, chosen: Iterable[Sequence[int | None]]) -> list[Span]:
    """Finds the files of given spans.

    Args:
      pattern: A glob with placeholders, see this module's docstring.
      chosen: (number, version) of each span; a version of None means the newest.
        Empty: all spans that `pattern` matches.

    Returns:
      The spans, in the order of `chosen`.

    Raises:
      NoFilesError: The pattern matches no file.
      BadInputError: A span or version does not exist (any more).
    """
    found = {(span.number, span.version): span for span in find_editions(pattern)}
    newest = {number: span for (number, _), span in found.items()}
    resolved = []
    for number, version in chosen:
        span = newest.get(number) if version is None else found.get((number, version))
        if span is None:
            edition = "" if version is None else f" in version {version}"
            raise BadInputError(
                f"and span {number}{edition} of {pattern} does not exist; found: "
                f"{describe(found.values())}",
                key="data.spans",
                received=str(list(chosen)),
                remedy="Restore its files or choose other spans.",
            )
        resolved.append(span)
    return resolved or list(newest.values())


def describe(spans: Iterable[Span]) -> str:
    """Numbers, versions and dates of spans, abridged, for messages."""
    names = []
    for span in spans:
        edition = "" if span.version is None else f" version {span.version}"
        names.append(f"{span.number}{edition}" + f" ({span.date})" * bool(span.date))
    if len(names) > _SHOWN:
        names[_SHOWN // 2 : -_SHOWN // 2] = ["…"]
    return ", ".join(names)


def fingerprint(spans: Iterable[Span], memo: Path | None = None) -> str:
    """Hashes the names and contents of the spans' files, to 16 hexadecimal digits.

    Names are relative to the folder that all files share: moving all data together
    keeps the fingerprint.

    Args:
      spans: Spans with their files.
      memo: File that caches the hashes of files, see `files.digests`. Default: none.

    Raises:
      BadInputError: A file cannot be read.
    """
    spans = list(spans)
    paths = [path for span in spans for path in span.files]
    folders = [os.path.dirname(path) for path in paths]
    base = os.path.commonpath(folders) if folders else ""
    try:
        contents = iter(digests.digests(paths, memo))
    except OSError as error:
        raise BadInputError(
            f"{error.filename} cannot be read: {error.strerror}",
            key="data.examples",
            remedy="Make it readable, or correct the pattern.",
        ) from error
    digest = hashlib.sha256()
    for span in spans:
        digest.update(f"{span.number}\0{span.version}\0".encode())
        for path in span.files:
            name = os.path.relpath(path, base)
            digest.update(f"{name}\0{next(contents)}\0".encode())
    return digest.hexdigest()[:16]


def _reject_folders(pattern: str, folders: Iterable[str]) -> None:
    """Rejects a folder with the suffix of a data file.

    Spark writes such folders; ignoring one would lose its rows silently.

    Raises:
      BadInputError: Names the folder, and the pattern that matches the files in it.
    """
    for folder in sorted(folders):
        name = folder.rstrip(os.sep)
        if name.endswith(SUFFIXES):
            raise BadInputError(
                f"{pattern} matches the folder {name}, where a file is expected",
                key="data.examples",
                remedy="To read the files in such folders, write `data.examples: "
                f"{pattern}/*{os.path.splitext(name)[1]}`; or move the folder away.",
            )


def _reject_broken_links(paths: Iterable[str]) -> None:
    """Rejects a link to a file that does not exist: its rows would be lost silently."""
    for path in paths:
        if os.path.islink(path) and not os.path.exists(path):
            raise BadInputError(
                f"{path} is a link to {os.readlink(path)}, which does not exist",
                key="data.examples",
                remedy="Restore the file, or remove the link.",
            )


def _parse(pattern: str) -> list[str]:
    """Checks a pattern; returns glob text (even indices) and placeholders (odd)."""
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
    return parts


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


def _to_glob(parts: Sequence[str]) -> str:
    globs = list(parts)
    for index in range(1, len(parts), 2):
        digits = _width(parts[index])
        globs[index] = "[0-9]" * digits if digits else "[0-9]*"
    return "".join(globs)


def _to_regex(parts: Sequence[str]) -> str:
    regexes = [_glob_to_regex(part) for part in parts]
    for index in range(1, len(parts), 2):
        digits = _width(parts[index])
        count = f"{{{digits}}}" if digits else "+"
        regexes[index] = f"(?P<{parts[index].split(':')[0]}>[0-9]{count})"
    return "".join(regexes)


def _width(placeholder: str) -> int:
    name, _, width = placeholder.partition(":")
    return int(width or _DIGITS.get(name, 0))


def _glob_to_regex(text: str) -> str:
    """Translates a glob to a regular expression."""
    tokens = re.split(r"(\*\*/|\*|\?|\[!?\]?[^\]]*\])", text)
    special = {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}
    for index, token in enumerate(tokens):
        if index % 2 == 0:
            tokens[index] = re.escape(token)
        elif token in special:
            tokens[index] = special[token]
        else:
            tokens[index] = re.sub(r"^\[!", "[^", token.replace("\\", "\\\\"))
    return "".join(tokens)


def _number(groups: dict[str, str], path: str) -> tuple[int, str | None]:
    """The span's number, and its date if the pattern has dates."""
    if "SPAN" in groups:
        return _in_64_bits(groups["SPAN"], path), None
    day = groups.get("DATE") or "".join(groups.get(n, "") for n in ("YYYY", "MM", "DD"))
    if not day:
        return 0, None
    try:
        date = datetime.date(int(day[:4]), int(day[4:6]), int(day[6:]))
    except ValueError as error:
        raise BadInputError(
            f"{path}: {day} is not a day ({error})",
            key="data.examples",
            expected="year, month and day",
            remedy="Rename the file, or correct the pattern.",
        ) from error
    return (date - _EPOCH).days, date.isoformat()


def _reject_overlap(
    edition: tuple[int, int], paths: Sequence[str], regex: re.Pattern[str]
) -> None:
    """Rejects files of two spans, or versions, whose numbers differ only in zeros."""
    matches = [(path, regex.fullmatch(path)) for path in paths]
    numbers = {matched.groups(): path for path, matched in matches if matched}
    if len(numbers) < 2:
        return
    first, second, *_ = sorted(numbers.values())
    number, version = edition
    which = f"span {number}" + f", version {version}" * (version >= 0)
    raise BadInputError(
        f"both {first} and {second} are of {which}: their numbers differ only in zeros",
        key="data.examples",
        remedy="Give one of them another number, move it away, or set the number of "
        "digits in the pattern, as in {SPAN:2}.",
    )


def _in_64_bits(digits: str, path: str) -> int:
    """The number of a span or a version, as ML Metadata holds it."""
    if len(digits) > 18:
        raise BadInputError(
            f"{path}: {cut(digits, 40)} has too many digits",
            key="data.examples",
            expected="numbers of up to 18 digits",
            remedy="Rename the file, or correct the pattern.",
        )
    return int(digits)


def _nothing_found(pattern: str) -> str:
    folder = _deepest_folder(pattern)
    entries = sorted(entry for entry in os.listdir(folder) if entry[0] != ".")
    names = [name + "/" * os.path.isdir(f"{folder}/{name}") for name in entries]
    shown = abridged(names, _SHOWN)
    return (
        f"{pattern} matches no file. The deepest folder that exists is {folder}; in "
        f"it: {shown or 'nothing'}"
    )


def _deepest_folder(pattern: str) -> str:
    """The deepest existing folder that a leading part of `pattern` matches."""
    piece = os.path.dirname(os.path.abspath(pattern))
    while True:
        found = glob.glob(_to_glob(_PLACEHOLDER.split(piece)), recursive=True)
        folders = sorted(filter(os.path.isdir, found))
        if folders:
            return folders[-1]
        piece = os.path.dirname(piece)

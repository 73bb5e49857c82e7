"""Finds the files of a pattern: spans, their versions, and a fingerprint of the files.

Of a span, the newest version counts. The span of a day has as its number the days since
1 January 1970. This module needs only the standard library, unless files are objects of
S3 or Google Cloud Storage.
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
from typing import Any

from strategos.components.data_files.sources import name_of
from strategos.components.errors import BadInputError
from strategos.components.files import digests, listing, patterns
from strategos.components.files.filesystems import is_remote
from strategos.components.wording import abridged, cut

_EPOCH = datetime.date(1970, 1, 1)
_DAY = ". {DATE} is a day as eight digits, and {YYYY}-{MM}-{DD} one with hyphens"
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
      files: Paths or URLs, sorted.
    """

    number: int
    version: int | None
    date: str | None
    files: tuple[str, ...]


def find_spans(pattern: str) -> list[Span]:
    """Finds the newest version of each span that `pattern` matches, by number.

    Args:
      pattern: A glob with placeholders, see `patterns`. A plain glob is
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
      pattern: A glob with placeholders, see `patterns`.

    Raises:
      NoFilesError: The pattern matches no file.
      BadInputError: The pattern is malformed, or two spans have the same number.
    """
    patterns.check(pattern)
    regex = patterns.to_regex(pattern)
    files, folders = (_objects if is_remote(pattern) else _local)(pattern, regex)
    _reject_folders(pattern, folders)
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
            remedy=_folder_remedy(pattern)
            or "Correct the pattern, or put the data there.",
        )
    for edition, paths in editions.items():
        _reject_overlap(edition, paths, regex)
    return [
        Span(number, None if version < 0 else version, dates.get(number), tuple(paths))
        for (number, version), paths in sorted(editions.items())
    ]


def _folder_remedy(pattern: str) -> str:
    """A sentence with a pattern to use instead of a folder; "" for other patterns."""
    if is_remote(pattern) or not os.path.isdir(pattern):
        return ""
    known = map(name_of, sorted(os.listdir(pattern)))
    name = next(filter(None, known), "csv")
    return (
        f"It is a folder; for the files in it write `{pattern.rstrip('/')}/*.{name}`."
    )


def resolve_spans(pattern: str, chosen: Iterable[Sequence[Any]]) -> list[Span]:
    """Finds the files of given spans.

    Args:
      pattern: A glob with placeholders, see `patterns`.
      chosen: (number, version) of each span, e.g. `(3, None)`; None means the newest
        version.
        Empty: all spans that `pattern` matches.

    Returns:
      The spans, in the order of `chosen`.

    Raises:
      NoFilesError: The pattern matches no file.
      BadInputError: A span or version does not exist (any more).
    """
    editions = {(span.number, span.version): span for span in find_editions(pattern)}
    newest = {number: span for (number, _), span in editions.items()}
    resolved = []
    for number, version in chosen:
        span = (
            newest.get(number) if version is None else editions.get((number, version))
        )
        if span is None:
            edition = "" if version is None else f" in version {version}"
            raise BadInputError(
                f"span {number}{edition} of {pattern} does not exist; found: "
                f"{describe(editions.values())}",
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


def _local(pattern: str, regex: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Files and folders of this machine that a pattern may match."""
    matches = sorted(glob.glob(patterns.to_glob(pattern), recursive=True))
    _reject_broken_links(filter(regex.fullmatch, matches))
    return list(filter(os.path.isfile, matches)), list(filter(os.path.isdir, matches))


def _objects(pattern: str, regex: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Objects that a pattern may match, and folders, with objects, that it matches.

    Raises:
      BadInputError: The pattern names no bucket, the object store cannot be read, or
        `**` reaches an object that no pattern matches.
    """
    files, folders = _below(pattern)
    for url in files:
        if "//" in url.partition("://")[2] and name_of(url):
            raise BadInputError(
                f"{url} has an empty name between two slashes, and no pattern matches "
                "that",
                key="data.examples",
                remedy="Rename the object, or write a pattern without `**`.",
            )
    return files, list(filter(regex.fullmatch, folders))


def _below(pattern: str) -> tuple[list[str], list[str]]:
    """Objects and folders below the folder that a pattern begins with.

    Only as deep as the pattern goes: it may begin with a large bucket.
    """
    folder = patterns.fixed_folder(pattern)
    if not re.fullmatch(r"[a-z0-9]+://[^/]+(/.*)?", folder):
        raise BadInputError(
            "the pattern names no bucket",
            key="data.examples",
            received=pattern,
            expected="a bucket without placeholders, as in s3://BUCKET/data/*.csv",
        )
    try:
        rest = pattern[len(folder) + 1 :]
        return listing.below(folder, None if "**" in rest else rest.count("/"))
    except OSError as error:
        raise BadInputError(
            f"{folder} cannot be read: {error.strerror}", key="data.examples"
        ) from error


def _reject_folders(pattern: str, folders: Iterable[str]) -> None:
    """Rejects a folder with the suffix of a data file.

    Spark writes such folders, e.g. `flights.csv/`; ignoring a folder would lose its
    rows silently.

    Raises:
      BadInputError: Names the folder, and the pattern that matches the files in it.
    """
    for folder in sorted(folders):
        name = folder.rstrip(os.sep)
        if name_of(name):
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
    """Rejects numbers that differ only in zeros, e.g. files of spans `1` and `01`."""
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
    if is_remote(pattern):
        folder = patterns.fixed_folder(pattern)
        files, folders = _below(pattern)
        names = [
            url[len(folder) + 1 :] for url in (*files, *(f"{f}/" for f in folders))
        ]
        shown = (
            abridged(sorted(names), _SHOWN) or "nothing, or the bucket does not exist"
        )
        return f"{pattern} matches no object. Below {folder}: {shown}"
    folder = _deepest_folder(pattern)
    entries = sorted(entry for entry in os.listdir(folder) if entry[0] != ".")
    names = [name + "/" * os.path.isdir(f"{folder}/{name}") for name in entries]
    shown = abridged(names, _SHOWN)
    message = (
        f"{pattern} matches no file. The deepest folder that exists is {folder}; in "
        f"it: {shown or 'nothing'}"
    )
    return message + _DAY * ("{DATE}" in pattern)


def _deepest_folder(pattern: str) -> str:
    """The deepest existing folder that a leading part of `pattern` matches."""
    piece = os.path.dirname(os.path.abspath(pattern))
    while True:
        matches = glob.glob(patterns.to_glob(piece), recursive=True)
        folders = sorted(filter(os.path.isdir, matches))
        if folders:
            return folders[-1]
        piece = os.path.dirname(piece)

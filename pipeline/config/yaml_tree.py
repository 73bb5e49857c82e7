"""YAML files and `--set` values as trees with the place of every value.

The dialect is YAML 1.2: `1e-3` is a number, `yes`, `on` and `12:30` are text; a key
that occurs twice is rejected. Aliases are supported; merge keys (`<<`) and tags are
not.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from strategos.components.errors import BadInputError, Place, UserError, mask
from strategos.components.wording import cut
from strategos.pipeline.config import MAIN_FILE


@dataclass(frozen=True)
class Entry:
    """One value of a YAML tree.

    Attributes:
      value: A scalar, a list of entries or a mapping of names to entries.
      place: Where the value starts.
      key_place: Where the value's key starts.
    """

    value: Any
    place: Place
    key_place: Place

    def find(self, path: Iterable[str | int]) -> tuple[Entry, bool]:
        """Follows `path` as far as it exists.

        Args:
          path: Names of keys, and indices of list items.

        Returns:
          The deepest entry found, and whether that is the whole path.
        """
        entry = self
        for part in path:
            try:
                entry = entry.value[part]
            except (KeyError, IndexError, TypeError):
                return entry, False
        return entry, True

    def leaves(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple, Entry]]:
        """Yields this entry and every one below, with its path.

        Args:
          path: The path of this entry.
        """
        yield path, self
        if isinstance(self.value, dict):
            for name, entry in self.value.items():
                yield from entry.leaves((*path, name))


def merge(base: Entry, over: Entry) -> Entry:
    """Overrides `base` by `over`: mappings are merged, anything else is replaced."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(base.value)
    for name, entry in over.value.items():
        merged[name] = merge(merged[name], entry) if name in merged else entry
    return replace(base, value=merged)


def read_file(path: str | Path) -> tuple[Entry | None, list[UserError]]:
    """Reads a YAML file.

    Returns:
      The mapping in the file (None if it has none), and its problems as YAML.
    """
    name = os.fspath(path)
    if name.endswith(_DATA):
        return None, [
            BadInputError(
                "is a data file, not YAML",
                place=Place(name),
                remedy="Name the pipeline's YAML first, then the file.",
            )
        ]
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return None, [_unreadable(Path(path), error)]
    entry, problems = _parse(text, Place(name, 1, 1), in_file=True)
    if _is_python(name, text, entry):
        return None, [
            BadInputError(
                "is Python, not YAML",
                place=Place(name),
                remedy="Name the pipeline's YAML; Python modules stand beside it.",
            )
        ]
    if entry is None or isinstance(entry.value, dict):
        return entry, problems
    problems.append(
        BadInputError(
            "the file is empty" if entry.value is None else "the file is not a mapping",
            place=Place(name),
            expected="`key: value` lines",
            remedy="See docs/configuration.md for a file to start from.",
        )
    )
    return None, problems


def _is_python(name: str, text: str, entry: Entry | None) -> bool:
    """Whether a file that has no settings is a Python module."""
    if not name.endswith(".py") and entry and isinstance(entry.value, dict):
        return any(key.startswith(_STATEMENTS) for key in entry.value)
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return name.endswith(".py")
    return any(not isinstance(node, ast.Expr | ast.AnnAssign) for node in body)


def read_set(text: str) -> tuple[Entry | None, list[UserError]]:
    """Reads a flag `--set a.b=VALUE` as the mapping {a: {b: VALUE}}.

    Args:
      text: `a.b=VALUE`, with VALUE in YAML; a name with a dot in double quotes, e.g.
        `evaluator.bounds."recall@0.3".at_least=0.8`.

    Returns:
      The mapping (None if it cannot be read), and its problems as YAML.
    """
    key, equals, value = text.partition("=")
    place = Place(mask(f"--set {cut(text, _SHOWN)}"))
    names = _NAME.findall(key)
    if not (equals and key) or ".".join(names) != key:
        problem = BadInputError(
            "is not KEY=VALUE", place=place, remedy=f"Write {_USAGE}."
        )
        return None, [problem]
    entry, problems = _parse(value, place, in_file=False)
    if entry is None:
        return None, problems
    for name in reversed(names):
        entry = Entry({name.strip('"'): entry}, place, place)
    return entry, problems


_DATA = (".csv", ".csv.gz", ".parquet")
_SHOWN = 100  # Characters of a flag in a message.
_NAME = re.compile(r'"[^"]+"|[^."]+')
_USAGE = "for example `--set trainer.batch_size=512`"


_ENTRIES = 100_000  # of a file; aliases within aliases multiply
_STANDARD = re.compile("tag:yaml.org,2002:(str|null|bool|int|float|seq|map)")
_STATEMENTS = ("def ", "class ", "import ", "from ", "if ")
_SPECIAL = "*&!%@`|>"  # With which plain text of YAML cannot begin.
_QUOTED = """`--set "schedule.cron='*/2 * * * *'"`"""
_DIGITS = 100  # Python cannot convert more than 4,300.


class _Loader(yaml.CSafeLoader):
    """libyaml with scalars of YAML 1.2 instead of 1.1, e.g. `no` is a text."""

    yaml_implicit_resolvers: dict = {}


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
}
for _tag, (_regex, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_regex})$"), _first
    )


def is_plain_text(text: str) -> bool:
    """Whether `text`, written without quotes, is read back as the same text."""
    if not re.fullmatch(
        r"[\w./{}*+$~=%@-]([\w ./{}*+$~=%@:,-]*[\w./{}*+$~=%@-])?", text
    ):
        return False
    if text[0] in "{}*%@-" or ": " in text or " #" in text:
        return False
    return not any(re.fullmatch(regex, text) for regex, _ in _SCALARS.values())


def _parse(
    text: str, place: Place, *, in_file: bool
) -> tuple[Entry | None, list[UserError]]:
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            return Entry(None, place, place), []
        reader = _Reader(place, in_file)
        return reader.entry(node, place), reader.problems
    except _TooManyEntriesError:
        remedy = "Write it without aliases (`*name`) of lists that contain aliases."
        message = f"has more than {_ENTRIES:,} values"
        return None, [BadInputError(message, place=place, remedy=remedy)]
    except yaml.YAMLError as error:
        return None, [_syntax_problem(error, text, place, in_file)]
    except RecursionError:
        remedy = "Check the brackets."
        return None, [BadInputError("is nested too deeply", place=place, remedy=remedy)]


class _TooManyEntriesError(Exception):
    """The aliases of a file stand for more entries than any settings have."""


class _Reader:
    """Turns YAML nodes into entries and collects problems.

    Attributes:
      problems: Parts of the nodes that are not supported, e.g. duplicate keys.
    """

    def __init__(self, place: Place, in_file: bool):
        self._place = place
        self._in_file = in_file
        self._open: list[yaml.Node] = []
        self._entries = 0
        self.problems: list[UserError] = []

    def entry(self, node: yaml.Node, key_place: Place) -> Entry:
        place = self._where(node)
        self._entries += 1
        if self._entries > _ENTRIES:
            raise _TooManyEntriesError
        if not _STANDARD.fullmatch(node.tag):
            message = f"the tag {node.tag} is not supported"
            self._reject(place, message, "Remove the tag.")
            return Entry(None, place, key_place)
        if any(node is outer for outer in self._open):
            self._reject(place, "an alias that contains itself", "Write the value out.")
            return Entry(None, place, key_place)
        self._open.append(node)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.entry(item, self._where(item)) for item in node.value]
        elif isinstance(node, yaml.ScalarNode):
            value = self._scalar(node, place)
        self._open.pop()
        return Entry(value, place, key_place)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            place = self._where(key)
            if not isinstance(key, yaml.ScalarNode):
                self._reject(place, "a key that is not a name", "Write a plain name.")
            elif key.value == "<<":
                remedy = "Write the keys out, or use an overlay file."
                self._reject(place, "merge keys (`<<`) are not supported", remedy)
            elif key.value in entries:
                first = entries[key.value].key_place
                remedy = f"It is first given at {first}; keep one of the two."
                self._reject(place, f"duplicate key `{key.value}`", remedy)
            else:
                entries[key.value] = self.entry(value, place)
        return entries

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        tag, text = node.tag.rpartition(":")[2], node.value
        if tag == "int":
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            if len(text) > _DIGITS:
                remedy = f"Write at most {_DIGITS} digits."
                self._reject(place, "a number with too many digits", remedy)
                return None
            return int(text, base)
        if tag == "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        return {"str": text, "null": None, "bool": text.lower() == "true"}[tag]

    def _where(self, node: yaml.Node) -> Place:
        if not self._in_file:
            return self._place
        mark = node.start_mark
        return Place(self._place.source, mark.line + 1, mark.column + 1)

    def _reject(self, place: Place, message: str, remedy: str) -> None:
        self.problems.append(BadInputError(message, place=place, remedy=remedy))


def _syntax_problem(
    error: yaml.YAMLError, text: str, place: Place, in_file: bool
) -> UserError:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode()[: error.position].decode(errors="ignore")
        line, column = before.count("\n"), len(before.rpartition("\n")[2])
        cause = f"the character #x{error.character:02x} is not allowed"
    else:
        line, column = (mark.line, mark.column) if mark else (0, 0)
        parts = (getattr(error, name, None) for name in ("problem", "context"))
        cause = ", ".join(filter(None, parts))
        begin = getattr(error, "context_mark", None)
        if in_file and begin and begin.line < line:
            cause += f" that begins at line {begin.line + 1}"
    if in_file:
        place = Place(place.source, line + 1, column + 1)
    remedy = "Check indentation, quotes, brackets and the space after each colon."
    at = text.splitlines()[line : line + 1] or [""]
    value = at[0].partition(": ")[2].strip() if in_file else text
    if value and value[0] in _SPECIAL:
        example = "cron: '*/2 * * * *'" if in_file else _QUOTED
        remedy = f"{value[0]} is a sign of YAML: quote the value, for example {example}"
    indent = at[0][: len(at[0]) - len(at[0].lstrip())]
    if "\t" in indent or at[0][column : column + 1] == "\t":
        cause, column = "a tab, which YAML does not allow here", at[0].index("\t")
        remedy = "Use spaces; most editors can insert them for the Tab key."
    return BadInputError(f"is not valid YAML: {cause}", place=place, remedy=remedy)


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> UserError:
    if isinstance(error, UnicodeDecodeError):
        return BadInputError(
            f"is not UTF-8 text (byte {error.start})",
            place=Place(str(path)),
            remedy="Save the file as UTF-8.",
        )
    folder = path if path.is_dir() else path.parent
    others = sorted(p for p in folder.glob("*.y*ml") if p.is_file())[:5]
    nearby = ", ".join(map(str, others))
    cause = {True: "is a folder"}.get(path.is_dir(), error.strerror or str(error))
    remedy = f"YAML files in {folder}: {nearby}." if nearby else "Check the path."
    if path == Path(MAIN_FILE):
        remedy = (
            f"Name a PIPELINE_YAML, or change to its folder. {remedy * bool(nearby)}"
        )
    return BadInputError(
        f"cannot be read: {cause}", place=Place(str(path)), remedy=remedy
    )

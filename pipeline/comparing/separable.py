"""The changes between two runs that can be made one without the others.

A setting by key, a file of the user's code by block of changed lines, data by span or
file. `mixed` returns the first state with some of the changes.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from strategos.components.errors import required
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.wording import counted
from strategos.pipeline.comparing import reproduction
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.made_from import compared
from strategos.pipeline.made_from.record import DataFile, Kept, MadeFrom

DATA, CODE, SETTINGS = KINDS = ("data", "code", "settings")
_WIDTH = 40  # characters of a value
_CONTEXT = 1  # lines: blocks with at most twice as many between them are one
_ABSENT = object()
_WITHOUT_EFFECT = {
    *(("name",), ("run",), ("evaluator", "bounds"), ("evaluator", "slices")),
    *(("trainer", "compare_fresh"), ("trainer", "fresh_every")),
    *(("data", key) for key in ("examples", "spans", "complete", "prepare", "query")),
    *((key,) for key in reproduction.LEFT_OUT),
}
"""Settings that change no metric, or that the record's list of files replaces."""


@dataclasses.dataclass
class _Draft:
    """Settings, code and data of a state, while changes are made to it."""

    settings: dict[str, Any]
    code: dict[str, bytes]
    data: list[DataFile]
    blocks: dict[str, list[_Block]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Change:
    """A change that can be made alone.

    Attributes:
      kind: `DATA`, `CODE` or `SETTINGS`.
      name: Its key, path or lines, e.g. `trainer.epochs` or `model.py lines 3-5`.
      detail: The change, e.g. `1 → 2` or `2 files added`.
      apply: Makes the change.
      diff: The lines of a unified diff of code; else empty.
    """

    kind: str
    name: str
    detail: str
    apply: Callable[[_Draft], None]
    diff: tuple[str, ...] = ()


class _Block(NamedTuple):
    """Lines that replace others.

    Attributes:
      start: The first line that is replaced, counted from 0.
      end: The line after the last one.
      lines: The new lines.
    """

    start: int
    end: int
    lines: Sequence[bytes]


@dataclasses.dataclass(frozen=True)
class State:
    """The record of a run, with the content of its code.

    Attributes:
      made_from: The record; `trainer.warm_start` names the weights themselves.
      code: The content of each file of the code.
    """

    made_from: MadeFrom
    code: Mapping[str, bytes]

    @property
    def folder(self) -> str:
        """The folder of the YAML."""
        return os.path.dirname(self.made_from.yaml)


def state(kept: Kept, weights: str) -> State:
    """The state of a run, from its record without `reproduction.problems`.

    Args:
      kept: The record.
      weights: The weights that the training started from; `NOTHING` if fresh.
    """
    made = kept.made_from
    settings: Any = copy.deepcopy(dict(made.settings))
    if settings["trainer"]["warm_start"] == LATEST:
        settings["trainer"]["warm_start"] = None if weights == NOTHING else weights
    code = {
        name: content
        for name, content in reproduction.code(kept)
        if content is not None
    }
    return State(dataclasses.replace(made, settings=settings), code)


def changes(first: State, second: State) -> list[list[Change]]:
    """The changes from one state to another, in a list for each of `KINDS`."""
    return [
        list(_data(first, second)),
        list(_code(first.code, second.code)),
        list(_settings(first, second)),
    ]


def mixed(first: State, chosen: Iterable[Change]) -> State:
    """The first state with some of the changes to the second."""
    made = first.made_from
    draft = _Draft(
        copy.deepcopy(dict(made.settings)), dict(first.code), list(made.data)
    )
    for change in chosen:
        change.apply(draft)
    for path, blocks in draft.blocks.items():
        draft.code[path] = _patched(first.code[path], blocks)
    digests = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in draft.code.items()
    }
    data = sorted(draft.data, key=lambda file: (file.span, file.path))
    made = dataclasses.replace(made, settings=draft.settings, code=digests, data=data)
    return State(made, draft.code)


def _patched(content: bytes, blocks: Iterable[_Block]) -> bytes:
    lines = content.splitlines(keepends=True)
    for block in sorted(blocks, reverse=True):
        lines[block.start : block.end] = block.lines
    return b"".join(lines)


def _settings(first: State, second: State) -> Iterator[Change]:
    moved = _moved(second.made_from.settings, second.folder, first.folder)
    return _leaves(first.made_from.settings, moved, ())


def _leaves(before: Any, after: Any, keys: tuple[str, ...]) -> Iterator[Change]:
    if before == after or keys in _WITHOUT_EFFECT:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before:
        for key in dict.fromkeys([*before, *after]):
            values = before.get(key, _ABSENT), after.get(key, _ABSENT)
            yield from _leaves(*values, keys=(*keys, key))
        return
    detail = " → ".join(
        compared.shown(None if value is _ABSENT else value, _WIDTH)
        for value in (before, after)
    )
    apply = functools.partial(_set, keys, after)
    yield Change(SETTINGS, ".".join(keys), detail, apply)


def _set(keys: Sequence[str], value: Any, draft: _Draft) -> None:
    *parents, last = keys
    section: Any = draft.settings
    for key in parents:
        section = section[key]
    if value is _ABSENT:
        section.pop(last, None)
    else:
        section[last] = copy.deepcopy(value)


def _moved(value: Any, old: str, new: str) -> Any:
    """Settings of a YAML in the folder `old`, for one in `new`."""
    if isinstance(value, Mapping):
        return {key: _moved(each, old, new) for key, each in value.items()}
    if isinstance(value, str) and value.startswith(f"{old}/"):
        return f"{new}{value[len(old) :]}"
    return value


def _code(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[Change]:
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        texts = _lines(old or b""), _lines(new or b"")
        if old is not None and new is not None and None not in texts:
            yield from _blocks(path, old, new)
            continue
        state = "added" if old is None else "removed" if new is None else "changed"
        apply = functools.partial(_put, path, new)
        diff = () if None in texts else _diff(path, *map(required, texts))
        yield Change(CODE, path, state, apply, diff)


def _put(path: str, content: bytes | None, draft: _Draft) -> None:
    if content is None:
        del draft.code[path]
    else:
        draft.code[path] = content


def _lines(content: bytes) -> list[str] | None:
    """The lines of a file; None if it is not text."""
    try:
        return [x.decode().rstrip("\r\n") for x in content.splitlines(keepends=True)]
    except UnicodeDecodeError:
        return None


def _diff(path: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    names = f"a/{path}", f"b/{path}"
    return tuple(difflib.unified_diff(before, after, *names, lineterm=""))


def _blocks(path: str, before: bytes, after: bytes) -> Iterator[Change]:
    old, new = (x.splitlines(keepends=True) for x in (before, after))
    compare = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in compare.get_grouped_opcodes(_CONTEXT):
        differing = [code for code in group if code[0] != "equal"]
        start, end = differing[0][1], differing[-1][2]
        block = _Block(start, end, new[differing[0][3] : differing[-1][4]])
        alone = _patched(before, [block])
        diff = _diff(path, *map(required, map(_lines, (before, alone))))
        apply = functools.partial(_replace, path, block)
        yield Change(CODE, f"{path} {_place(start, end)}", "changed", apply, diff)


def _place(start: int, end: int) -> str:
    if end - start > 1:
        return f"lines {start + 1}-{end}"
    return f"line {start + 1}" if end > start else f"after line {start}"


def _replace(path: str, block: _Block, draft: _Draft) -> None:
    draft.blocks.setdefault(path, []).append(block)


def _data(first: State, second: State) -> Iterator[Change]:
    before, after = first.made_from, second.made_from
    differing = {each.path for each in compared.data(before.data, after.data)}
    patterns = [str(x.settings["data"]["examples"]) for x in (before, after)]
    if differing and (patterns[0] != patterns[1] or is_remote(patterns[0])):
        settings = {key: after.settings["data"][key] for key in ("examples", "spans")}
        yield _files(patterns[1], before.data, after.data, settings)
        return
    listed = [*before.data, *after.data]
    has_spans = any(file.span for file in listed)
    places = {
        file.path: (file.span, "" if has_spans else file.path)
        for file in listed
        if file.path in differing
    }
    ordered = sorted(places, key=lambda path: (places[path], path))
    for _, group in itertools.groupby(ordered, key=lambda path: places[path]):
        paths = frozenset(group)
        name = os.path.commonpath(paths)
        if name.startswith(f"{first.folder}/"):
            name = os.path.relpath(name, first.folder)
        old, new = (
            [file for file in files if file.path in paths]
            for files in (before.data, after.data)
        )
        yield _files(name, old, new, {})


def _files(
    name: str,
    before: Sequence[DataFile],
    after: Sequence[DataFile],
    settings: Mapping[str, Any],
) -> Change:
    """The change of some data files, and of the settings that select them."""
    old, new = ({file.path for file in files} for files in (before, after))
    states = {"added": new - old, "removed": old - new, "changed": old & new}
    parts = [f"{counted(len(x), 'file')} {state}" for state, x in states.items() if x]
    apply = functools.partial(_exchange, old, after, settings)
    return Change(DATA, name, ", ".join(parts), apply)


def _exchange(
    gone: Set[str],
    files: Sequence[DataFile],
    settings: Mapping[str, Any],
    draft: _Draft,
) -> None:
    kept = [file for file in draft.data if file.path not in gone]
    draft.data = [*kept, *files]
    draft.settings["data"].update(settings)

"""`strategos docs KEY`: the reference of the settings in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pydantic
import yaml
from pydantic_core import PydanticUndefined

from strategos.components.errors import BadInputError, ExitCode
from strategos.components.evaluation.metrics import METRICS
from strategos.components.wording import counted, cut, listed, nearest, quoted
from strategos.pipeline.config import introspect
from strategos.pipeline.config.introspect import Key
from strategos.pipeline.config.sections import Config

_NAMES = 4  # keys in a message
_WIDEST = 10_000  # characters of a line that nobody reads in a terminal
_WIDTH = 60  # characters of a meaning in a list
_SUCH_AS = re.compile("such as `?(.+?)`?(?:, | or |$)")
_LISTED = re.compile(r"`(\[[^`]+\]|\{[^`]+: [^`]+\})`")
"""A list or a mapping in a description, such as `{shop: "", age: -1}`."""
_TYPES = ("text", "a path", "a number", "true", "false")


def docs(arguments: argparse.Namespace) -> int:
    """`strategos docs [KEY]`: a key, and the keys below it; without one, the sections.

    Raises:
      BadInputError: The key is unknown.
    """
    if arguments.schema:
        print(introspect.json_schema(Config, METRICS.own), end="")
        return ExitCode.DONE
    known = {".".join(key.path): key for key in introspect.keys(Config)}
    path: tuple[str, ...] = ()
    shown = []
    if arguments.key:
        path = _found(arguments.key, known)
        names = tuple(arguments.key.split("."))
        shown.append(dataclasses.replace(known[".".join(path)], path=names))
    # What is below a mapping has a name of the user's between.
    parents = (path, (*path, "NAME"))
    below = [key for key in known.values() if key.path[:-1] in parents]
    if arguments.json:
        print(json.dumps([described(key) for key in (*shown, *below)], indent=2))
        return ExitCode.DONE
    for key in shown:
        _show(key)
    if below:
        _list(below)
    return ExitCode.DONE


def _found(wanted: str, known: Collection[str]) -> tuple[str, ...]:
    """The path of a key, in which any name may stand for `NAME`."""
    parts = wanted.split(".")
    for each in known:
        own = each.split(".")
        if len(own) == len(parts) and all(map(_is_named, own, parts)):
            return tuple(own)
    last = {each: each.rpartition(".")[2] for each in known}
    near = wanted if wanted in last.values() else nearest(wanted, known)
    near = near or nearest(parts[-1], last.values())
    names = [each for each in known if near in (each, last[each])]
    remedy = "`strategos docs` lists the sections."
    if names:
        remedy = f"Did you mean {listed(quoted(names[:_NAMES]), 'or')}?"
    raise BadInputError("unknown key", key=wanted, remedy=remedy)


def _is_named(own: str, name: str) -> bool:
    return own in ("NAME", name)


def described(key: Key) -> dict[str, Any]:
    """The reference's entry of a key, as JSON-able values.

    Args:
      key: The key.

    Returns:
      `key`, `allowed`, `required`, `default` (None without one), `meaning` and
      `example`, a piece of YAML (None for a section).
    """
    return {
        "key": ".".join(key.path),
        "allowed": introspect.describe(key.annotation),
        "required": key.field.is_required(),
        "default": _default(key),
        "meaning": key.field.description,
        "example": _example(key),
    }


def _is_section(key: Key) -> bool:
    return introspect.model_at(Config, key.path) is not None


def _default(key: Key) -> Any:
    default = key.field.default
    if default is PydanticUndefined or _is_section(key):
        return None
    return list(default) if isinstance(default, tuple) else default


def _example(key: Key) -> str | None:
    if _is_section(key):
        return None
    valid = filter(functools.partial(_is_valid, key), _candidates(key))
    value = next(valid, _placeholder(introspect.describe(key.annotation)))
    for name in reversed(key.path):
        value = {name: value}
    text = yaml.safe_dump(
        value, default_flow_style=False, sort_keys=False, allow_unicode=True
    )
    return text.rstrip()


def _placeholder(allowed: str) -> Any:
    forms = {"a list": ["…"], "a mapping": {"NAME": "…"}}
    return next((x for word, x in forms.items() if allowed.startswith(word)), "…")


def _candidates(key: Key) -> Iterator[Any]:
    """Yields values that the key may have, by its declaration, default and texts."""
    yield from key.field.examples or ()
    yield _default(key) or True
    allowed = introspect.describe(key.annotation)
    texts = _SUCH_AS.findall(allowed)
    if ": " not in allowed:
        texts += [each for each in re.split(", | or ", allowed) if each not in _TYPES]
    texts += _LISTED.findall(key.field.description or "")
    for text in texts:
        if text[0] in "[{" or " " not in text or text in allowed:
            with contextlib.suppress(yaml.YAMLError):
                yield yaml.safe_load(text)
            yield text
    yield from (0.5, 1, True)


def _is_valid(key: Key, value: Any) -> bool:
    if value in (None, "", [], {}):
        return False
    try:
        pydantic.TypeAdapter(key.annotation).validate_json(
            json.dumps(value), strict=True
        )
    except (ValueError, TypeError):
        return False
    return True


def _show(key: Key) -> None:
    about = described(key)
    texts = {
        "key": about["key"],
        "allowed": about["allowed"],
        "default": "required" if about["required"] else _shown(about["default"]),
        "meaning": about["meaning"],
        "example": about["example"],
    }
    if _is_section(key):
        texts |= {"allowed": "a section", "default": ""}
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    for label, text in texts.items():
        head, lines = f"  {label:8} ", (text or "").splitlines()
        for line in lines:
            print(
                textwrap.fill(
                    line,
                    width,
                    initial_indent=head,
                    subsequent_indent=" " * len(head),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
            head = " " * len(head)


def _shown(default: Any) -> str:
    return "none" if default in (None, "", []) else json.dumps(default)


def _list(keys: Sequence[Key]) -> None:
    print(f"\n  {counted(len(keys), 'key')} below:")
    width = max(len(".".join(key.path)) for key in keys)
    for key in keys:
        meaning = (key.field.description or "").partition(". ")[0]
        print(f"  {'.'.join(key.path):{width}}  {cut(meaning, _WIDTH)}".rstrip())

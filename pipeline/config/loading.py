"""Loads the effective settings from files and flags, each with its origin.

    loaded = load("pipeline.yaml", overlays=["prod.yaml"], sets=["trainer.epochs=2"])
    loaded.config.trainer.epochs           # 2
    loaded.origins["trainer.epochs"]       # "--set"

Later layers override earlier ones: main file, overlays, `--set`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from strategos.components.errors import Place, UserError
from strategos.pipeline.config import introspect
from strategos.pipeline.config.problems import (
    ConfigError,
    Repaired,
    from_pydantic,
    repaired,
)
from strategos.pipeline.config.sections import Config
from strategos.pipeline.config.types import PASSWORD_VARIABLE, absolute
from strategos.pipeline.config.yaml_tree import (
    Entry,
    is_plain_text,
    merge,
    read_file,
    read_set,
)

__all__ = [
    "ConfigError",
    "Loaded",
    "effective",
    "effective_json",
    "load",
]


@dataclass(frozen=True)
class Loaded:
    """The effective settings.

    Attributes:
      config: The settings.
      origins: The origin of each value by key path: `pipeline.yaml:12`, `--set`,
        `default` or `environment`.
    """

    config: Config
    origins: dict[str, str]


def load(
    path: str | Path,
    overlays: Sequence[str | Path] = (),
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Reads the YAML at `path`, overridden by overlays and `KEY=VALUE` settings.

    Args:
      path: The main YAML; its folder contains the user's modules.
      overlays: YAML files; a later one overrides an earlier one.
      sets: `KEY=VALUE` with VALUE in YAML.
      environ: The environment; this process's by default. Nothing else reads it.

    Raises:
      ConfigError: The settings are invalid; contains every problem that was found.
    """
    environ = os.environ if environ is None else environ
    main, problems = read_file(path)
    layers = [main]
    for overlay in overlays:
        entry, more = read_file(overlay)
        problems += more
        layers.append(entry and _anchor(entry, Path(overlay).parent.resolve()))
    for text in sets:
        entry, more = read_set(text)
        problems += more
        layers.append(entry)
    if main is None:
        raise ConfigError(problems, os.fspath(path))
    entry = main
    for layer in filter(None, layers[1:]):
        entry = merge(entry, layer)
    return _validate(entry, Path(path), environ.get(PASSWORD_VARIABLE), problems)


def effective(loaded: Loaded, width: int | None = None) -> str:
    """The settings as YAML, each value with its origin as a comment.

    Args:
      loaded: From `load`.
      width: Columns of the terminal. A comment without room beside its value stands
        in the next line. None: every comment stands beside its value.
    """
    rows = []
    for text, key in _rows(loaded.config.model_dump(mode="json", by_alias=True)):
        origin = loaded.origins.get(key, "")
        if key == "run.metadata" and loaded.config.metadata_password:
            origin += f"; password **** from {PASSWORD_VARIABLE} (environment)"
        rows.append((text, f"  # {origin}" if origin else ""))
    room = max(len(text) for text, _ in rows)
    if width:
        room = max(0, min(room, width - max(len(comment) for _, comment in rows)))
    column = max((len(text) for text, _ in rows if len(text) <= room), default=0)
    lines = []
    for text, comment in rows:
        if comment and len(text) > column:
            lines.append(text)
            text = ""
        lines.append(f"{text:<{column}}{comment}".rstrip() if comment else text)
    return "\n".join(lines) + "\n"


def effective_json(loaded: Loaded) -> str:
    """The settings and their origins as JSON."""
    settings = loaded.config.model_dump(mode="json", by_alias=True)
    both = {"settings": settings, "origins": loaded.origins}
    return json.dumps(both, indent=2, ensure_ascii=False) + "\n"


def _validate(
    entry: Entry, path: Path, password: str | None, problems: list[UserError]
) -> Loaded:
    path = path.parent.resolve() / path.name
    places = {".".join(p): e.place for p, e in entry.leaves() if p}
    context = {"path": path, "password": password, "places": places}
    settings = _plain(entry, ())
    try:
        config = Config.model_validate(settings, context=context)
        rest: Repaired | None = Repaired(config, frozenset())
    except ValidationError as error:
        problems = problems + from_pydantic(error, Config, _locator(entry))
        rest = repaired(settings, error, Config, context)
    if problems:
        about = entry.place.source
        raise ConfigError(in_reading_order(problems, about), about, rest)
    return Loaded(config, _origins(config, entry, password))


def in_reading_order(problems: Sequence[UserError], main: str) -> list[UserError]:
    """Sorts problems: the main file first, then overlays, then flags.

    Args:
      problems: One without a place counts as the first of the main file.
      main: The main file.
    """

    def order(problem: UserError) -> tuple:
        place = problem.place or Place(main, 1, 1)
        first = place.source == main
        return not first, not place.line, place.source, place.line, place.column

    return sorted(problems, key=order)


def _plain(entry: Entry, path: tuple[str, ...]) -> Any:
    """Strips the places from an entry, and keys set to null: these get the default.

    Unknown keys stay, to be rejected.
    """
    if isinstance(entry.value, list):
        return [_plain(item, (*path, "0")) for item in entry.value]
    if not isinstance(entry.value, dict):
        return entry.value
    free = _in_free(path)
    return {
        name: _plain(item, (*path, name))
        for name, item in entry.value.items()
        if free
        or item.value is not None
        or introspect.at(Config, (*path, name)) is None
    }


def _in_free(path: tuple[str, ...]) -> bool:
    return any(introspect.is_free(Config, path[:i]) for i in range(len(path) + 1))


def _anchor(entry: Entry, folder: Path, path: tuple[str, ...] = ()) -> Entry:
    """Makes the paths in an overlay absolute, relative to the overlay's folder."""
    if isinstance(entry.value, dict):
        items = entry.value.items()
        value = {name: _anchor(item, folder, (*path, name)) for name, item in items}
        return replace(entry, value=value)
    named = isinstance(entry.value, str) and entry.value.strip()
    if named and introspect.is_path(introspect.at(Config, path), entry.value):
        return replace(entry, value=absolute(entry.value, folder))
    return entry


def _locator(entry: Entry) -> Callable[[tuple[str | int, ...], bool], Place]:
    def locate(loc: tuple[str | int, ...], of_key: bool) -> Place:
        node, _ = entry.find(loc)
        return node.key_place if of_key else node.place

    return locate


def _origins(config: Config, entry: Entry, password: str | None) -> dict[str, str]:
    origins = {}
    settings = config.model_dump(mode="json", by_alias=True)
    for path in _leaf_paths(settings):
        node, exact = entry.find(path)
        is_set = exact or (path and node.value is None)
        origins[".".join(path)] = node.key_place.origin if is_set else "default"
    if password is not None:
        origins["run.metadata_password"] = "environment"
    return origins


def _leaf_paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaf_paths(item, (*path, name))
    else:
        yield path


def _rows(settings: dict, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yields lines of YAML, each with the key path of its value ("" for a section)."""
    for name, value in settings.items():
        key = (*path, name)
        head = "  " * len(path) + (name if is_plain_text(name) else json.dumps(name))
        if isinstance(value, dict) and value:
            yield f"{head}:", ""
            yield from _rows(value, key)
        else:
            yield f"{head}: {_scalar(value)}", ".".join(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and is_plain_text(value):
        return value
    if isinstance(value, list):
        items = (_scalar(i) if "," not in str(i) else json.dumps(i) for i in value)
        return f"[{', '.join(items)}]"
    return json.dumps(value, ensure_ascii=False)

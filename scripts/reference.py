"""Generates the JSON Schema and the reference of the YAML settings from their models.

    python scripts/reference.py

rewrites `schemas/pipeline.schema.json`, `docs/keys.md` and a page for each section in
`docs/keys`. Tests fail if a file is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic_core import PydanticUndefined

from strategos.components.evaluation.metrics import METRICS
from strategos.pipeline.config import introspect
from strategos.pipeline.config.sections import Config

_ROOT = Path(__file__).resolve().parents[1]
SCHEMA_FILE = _ROOT / "schemas" / "pipeline.schema.json"
DOCS = _ROOT / "docs"

_HEAD = """# All keys

Every key of the YAML, with its type, default and meaning. Generated from
`pipeline/config` by `python scripts/reference.py`: change descriptions there.
[configuration.md](configuration.md) explains the keys by what they are for.
"""
_SECTION_HEAD = """{docs} One section of [all keys](../keys.md).
`NAME` stands for a name that you choose, such as that of a metric or a feature.
"""


def json_schema() -> str:
    """The JSON Schema of the YAML, for editors."""
    return introspect.json_schema(Config, list(METRICS.own))


def pages() -> dict[str, str]:
    """The pages of all keys and all metrics: Markdown by path below `docs`."""
    sections = dict(_sections())
    listed = [
        f"- [`{name}`](keys/{name}.md): {docs}" for name, docs in sections.items()
    ]
    metrics = "- [Metrics](keys/metrics.md): names for `evaluator.metrics`."
    front = [_HEAD, *_table(None), "## Sections\n", *listed, metrics]
    below = {
        f"keys/{name}.md": [
            f"# `{name}`\n",
            _SECTION_HEAD.format(docs=docs),
            *_table(name),
        ]
        for name, docs in sections.items()
    }
    parts = {"keys.md": front, **below, "keys/metrics.md": [*_metric_table()]}
    return {path: "\n".join(each).rstrip() + "\n" for path, each in parts.items()}


def main() -> None:
    """Writes the schema and the pages."""
    SCHEMA_FILE.write_text(json_schema())
    for path, text in pages().items():
        (DOCS / path).write_text(text)


def _sections() -> Iterator[tuple[str, str]]:
    """Yields the name of each section, and the first line of its docstring."""
    for name in introspect.fields(Config):
        section = introspect.model_at(Config, (name,))
        if section:
            yield name, section.__doc__.splitlines()[0]


def _table(section: str | None) -> Iterator[str]:
    yield "| key | allowed | default | meaning |\n|---|---|---|---|"
    yield from (_row(key) for key in _keys_of(section))
    yield ""


def _keys_of(section: str | None) -> list[introspect.Key]:
    """The keys of a section to list in its table; keys of the top level for None."""
    keys = list(introspect.keys(Config))
    if section is None:
        return [key for key in keys if len(key.path) == 1]
    below = [key for key in keys if key.path[0] == section and len(key.path) > 1]
    return [key for key in below if not _is_redundant(key)]


def _is_redundant(key: introspect.Key) -> bool:
    """Whether the keys below document the key in full."""
    is_section = introspect.model_at(Config, key.path) is not None
    if is_section and (
        key.field.default is None or introspect.is_switch(key.annotation)
    ):
        return False
    return is_section or introspect.is_mapping_of_models(key.annotation)


def _row(key: introspect.Key) -> str:
    below = key.path if len(key.path) == 1 else key.path[1:]
    allowed = introspect.describe(key.annotation)
    if introspect.model_at(Config, key.path) and not introspect.is_switch(
        key.annotation
    ):
        page = len(key.path) == 1
        allowed = f"[a section](keys/{below[0]}.md)" if page else "a section, see below"
    cells = [f"`{'.'.join(below)}`", allowed, _default(key), key.field.description]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: introspect.Key) -> str:
    field = key.field
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined:
        return "" if introspect.model_at(Config, key.path) else "empty"
    if field.default in (None, "", ()):
        return "empty" if field.default == () else "none"
    return f"`{json.dumps(field.default)}`".replace('"', "")


def _metric_table() -> Iterator[str]:
    yield "# Metrics\n"
    yield "The names that `evaluator.metrics` and `evaluator.bounds` take.\n"
    yield "| metric | tasks | better | meaning |\n|---|---|---|---|"
    for name in METRICS.own:
        metric = METRICS[name]
        tasks = ", ".join(sorted(metric.tasks))
        direction = metric.direction or ""
        if metric.target is not None:
            direction = f"near {metric.target:g}"
        yield f"| `{name}` | {tasks} | {direction} | {metric.description} |"
    yield ""


if __name__ == "__main__":
    main()

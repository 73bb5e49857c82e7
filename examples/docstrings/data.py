"""Makes the data of this workload: docstrings of four libraries, as a Parquet file.

The text is real: the docstrings of NumPy, pandas, scikit-learn and SciPy as they are
installed here, read from their sources. Each row is one: `text` (its part before the
sections `Parameters`, `Returns` and so on, without the names of the libraries),
`library` (the name of the library) and `label` (its index in `LIBRARIES`).
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LIBRARIES = ("numpy", "pandas", "scipy", "sklearn")

_SECTION = re.compile(r"\n *[A-Z][A-Za-z ]+\n *-{3,}")
_NAMES = re.compile(r"\b(numpy|np|pandas|pd|scipy|sklearn|scikit(-learn)?)\b", re.I)
_SHORTEST = 20  # characters


def prepare(folder: str | Path) -> None:
    """Writes `folder/data/docstrings.parquet`."""
    rows = sorted({(text, name) for name in LIBRARIES for text in docstrings(name)})
    texts, names = zip(*rows, strict=True)
    table = pa.table(
        {"text": texts, "library": names, "label": [*map(LIBRARIES.index, names)]}
    )
    target = Path(folder, "data", "docstrings.parquet")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as aside:
        unfinished = Path(aside, target.name)
        pq.write_table(table, unfinished)
        os.replace(unfinished, target)
    print(f"docstrings: wrote {table.num_rows:,} texts to {target}")


def docstrings(library: str) -> Iterator[str]:
    """Yields the docstrings of an installed library, its tests apart.

    Raises:
      SystemExit: The library is not installed.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        raise SystemExit(
            f"{library} is not installed: pip install 'strategos[examples]'"
        )
    folder = Path(found.origin).parent
    for file in sorted(folder.rglob("*.py")):
        if "tests" not in file.relative_to(folder).parts:
            yield from _of_source(file.read_text(encoding="utf-8"))


def _of_source(source: str) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        text = _NAMES.sub("", _SECTION.split(f"\n{text}")[0]).strip() if text else ""
        if len(text) >= _SHORTEST:
            yield text


if __name__ == "__main__":
    prepare(Path(__file__).parent)

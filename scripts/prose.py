"""Checks the prose of messages, docstrings and pages: `make lint` runs it.

    python scripts/prose.py

A message stands alone in a log, so it begins with no word that needs the half before
it. A sentence of a page has at most 60 words. Circumlocutions are replaced by a name:
`CIRCUMLOCUTIONS` has the replacement of each. Docstrings name things, too: few of their
words are one of `CIRCLING`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    ROOT / "kubeflow" / "README.md",
)
HALF = re.compile(r"(but|which|whose|of which|and|so|where) ")
MOST_WORDS = 60
CIRCUMLOCUTIONS = {
    "there is no such": "`NAME` not found",
    "what else than": "anything but",
    "is there no": "`NAME` is missing",
    "what there is": "the name of it",
    "what is asked for": "the request",
    "what was asked": "the request",
    "no matter what": "always",
    "in the case that": "if",
    "due to the fact that": "because",
    "in order to": "to",
    "it should be noted": "",
    "as can be seen": "",
}
CIRCLING = re.compile(r"\b(?:what|whose|that\s+of)\b", re.I)
MOST_CIRCLING = 0.7  # per 1,000 words of docstrings, as in Kedro, Orbax and CLU
# Continues a list of names, in one place.
_LIST = ROOT / "components" / "wording.py"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> int:
    """Prints each fault with its place; returns the exit code."""
    found = list(faults())
    print("\n".join(found) or "prose: no faults found")
    return int(bool(found))


def faults() -> Iterator[str]:
    """Yields each fault of the prose, with file and line."""
    tops = ("pipeline", "components")
    code = [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]
    for path in code:
        yield from _of_code(path)
    yield from _of_docstrings(code)
    for page in sorted(PAGES):
        yield from _of_page(page)


def _of_code(path: Path) -> Iterator[str]:
    rest: set[ast.AST] = set()  # texts in the middle of others
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            rest.update(node.values[1:])
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        if HALF.match(node.value) and node not in rest and path != _LIST:
            yield f"{place}: half a sentence: {node.value[:60]!r}"
        yield from _circled(place, node.value)


def _of_docstrings(code: Iterable[Path]) -> Iterator[str]:
    words, circling = 0, Counter[Path]()
    for path in code:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, _DOCUMENTED):
                text = ast.get_docstring(node) or ""
                words += len(text.split())
                circling[path] += len(CIRCLING.findall(text))
    if 1000 * circling.total() > MOST_CIRCLING * words:
        worst = (f"{x.relative_to(ROOT)} ({n})" for x, n in circling.most_common(8))
        yield (
            f"docstrings: {circling.total()} of {words} words are 'what', 'whose' or "
            f"'that of', more than {MOST_CIRCLING} in 1000: name the thing; the worst "
            f"files: {', '.join(worst)}"
        )


def _of_page(page: Path) -> Iterator[str]:
    place = page.relative_to(ROOT)
    text = re.sub(r"^( *)```.*?^ *```$", _blank, page.read_text(), flags=re.M | re.S)
    for found in re.finditer(r"(?:^(?! *\|)[^#\n].*\n?)+", text, re.M):
        start = 1 + text.count("\n", 0, found.start())
        for item in re.split(r"\n(?= *(?:[-*]|\d+\.) )", found[0]):
            for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[])", item):
                words = len(re.sub(r"\]\([^)]*\)|`[^`]*`", " x ", sentence).split())
                if words > MOST_WORDS:
                    yield f"{place}:{start}: {words} words: {sentence[:60]!r}"
            yield from _circled(f"{place}:{start}", item)
            start += item.count("\n") + 1


def _circled(place: str, text: str) -> Iterator[str]:
    plain = " ".join(text.lower().split())
    for phrase, better in CIRCUMLOCUTIONS.items():
        if phrase in plain:
            yield f"{place}: {phrase!r}: write {better!r}"


def _blank(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


if __name__ == "__main__":
    sys.exit(main())

"""Hashes the user's code and the files that it names, for cache keys.

Reads the source only, and imports nothing. Included:

- the module and its imports, direct or not, in the workload's folder or elsewhere on
  the import path, but for installed packages and the standard library;
- files that the code names by a literal (`open("vocab.txt")`, `HERE / "assets" /
  "vocab.txt"`), whole;
- environment variables that the code reads by a literal name, if requested;
- files that the settings declare (`transform.files`, `trainer.files`);
- the version of the package, if the module itself is installed.

Not included: computed names, whole folders, and other installed packages. While the
code runs, `uses` records the files that are really used.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import glob
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from strategos.components.files import digests
from strategos.components.user_code import modules

_LONGEST_NAME = 255
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = "strategos"  # part of the stack's version


def fingerprint(
    folder: str,
    module: str,
    environ: Mapping[str, str] | None = None,
    memo: Path | None = None,
    files: Sequence[str] = (),
) -> str:
    """A hash of a module's code, and of the files and variables that it names.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      environ: Environment, to include the variables that the code reads; None to
        include no variables.
      memo: JSON file that caches digests, see `digests.digests`.
      files: Files, folders and globs, relative to `folder`, that are included too.
    """
    code = _Code(Path(folder).resolve(), files)
    code.add(module)
    digest = hashlib.sha256()
    if module not in code.sources:
        digest.update(f"{_installed(module)}\0".encode())
    for name, source in sorted(code.sources.items()):
        digest.update(f"{name}\0".encode() + source.content + b"\0")
    named = sorted(code.files())
    contents = digests.digests([str(path) for _, path in named], memo)
    for (name, _), content in zip(named, contents, strict=True):
        digest.update(f"{name}\0{content}\0".encode())
    if environ is not None:
        for name in sorted(code.variables()):
            digest.update(f"{name}={environ.get(name)}\0".encode())
    return digest.hexdigest()[:16]


def members(folder: str, module: str, files: Sequence[str] = ()) -> dict[Path, Path]:
    """The files that `fingerprint` hashes.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      files: As for `fingerprint`.

    Returns:
      The path of each file, by the absolute path that it needs beside the module: in
      `folder`, also for a module elsewhere on the import path. Files that the code
      names by an absolute path outside of `folder` are left out.
    """
    code = _Code(Path(folder).resolve(), files)
    code.add(module)
    return code.members()


def declared(folder: str | Path, pattern: str) -> list[Path]:
    """The files that match a pattern of the settings, or are in a matching folder.

    Args:
      folder: Folder of the workload's modules.
      pattern: A path or a glob, relative to `folder`, e.g. `assets/*.txt`.
    """
    matches = glob.glob(os.path.join(folder, pattern), recursive=True)
    below = (each for path in map(Path, matches) for each in (path, *path.rglob("*")))
    return sorted({each for each in below if each.is_file() and _is_own(each)})


def _is_own(path: Path) -> bool:
    return "__pycache__" not in path.parts


@dataclasses.dataclass(frozen=True)
class _Source:
    """A source file, parsed; with an empty tree if it cannot be parsed."""

    path: Path
    package: str
    content: bytes
    tree: ast.AST

    @classmethod
    def read(cls, path: Path, name: str) -> _Source:
        content = path.read_bytes()
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            tree = ast.Module([], [])  # importing the file will fail with file and line
        return cls(path, package, content, tree)


class _Code:
    """The sources of a module and of the modules that it imports, by name."""

    def __init__(self, folder: Path, declared: Sequence[str] = ()):
        self._folder = folder
        self._declared = declared
        self.sources: dict[str, _Source] = {}

    def add(self, module: str) -> None:
        """Adds a module and all modules that it imports."""
        todo, seen = [module], set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            parents = name.split(".")[:-1]
            todo.extend(".".join(parents[: i + 1]) for i in range(len(parents)))
            path = modules.find(str(self._folder), name) or _elsewhere(name)
            if path is not None:
                self.sources[name] = source = _Source.read(path, name)
                todo.extend(_imports(source))

    def files(self) -> set[tuple[str, Path]]:
        """Existing files that code or settings name, each with its name there."""
        return {
            (name, path)
            for source in self.sources.values()
            for name, path in _files(source, {self._folder, source.path.parent})
        } | {
            (os.path.relpath(path, self._folder), path)
            for pattern in self._declared
            for path in declared(self._folder, pattern)
        }

    def members(self) -> dict[Path, Path]:
        """See the function of this name."""
        files = {
            path: path
            for pattern in self._declared
            for path in declared(self._folder, pattern)
            if not os.path.isabs(pattern)
        }
        for source in self.sources.values():
            beside = self._folder.joinpath(*source.package.split("."))
            files[beside / source.path.name] = source.path
            bases = {self._folder: self._folder, source.path.parent: beside}
            for base, target in bases.items():
                for _, path in _files(source, {base}):
                    with contextlib.suppress(ValueError):
                        files[target / path.relative_to(base)] = path
        return {Path(os.path.normpath(at)): path for at, path in files.items()}

    def variables(self) -> set[str]:
        """Environment variables that the code reads by a literal name."""
        return {
            name for source in self.sources.values() for name in _variables(source.tree)
        }


def _files(source: _Source, bases: set[Path]) -> Iterator[tuple[str, Path]]:
    """Existing files that a source names, in `bases` or in folders that it names."""
    names = set(_literals(source.tree))
    folders = {base / n for base in bases for n in names if (base / n).is_dir()}
    for base in bases | folders:
        for name in names:
            path = base / name
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                yield name, path


def _elsewhere(name: str) -> Path | None:
    """The source of a module on the import path that is not installed, or None."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _OWN:
        return None
    spec = None
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    origins = [Path(place).parent for place in places]
    if not places and spec.origin and spec.origin.endswith(".py"):
        origins = [Path(spec.origin).parent]
    outside = [each for each in origins if not _INSTALLED & set(each.parts)]
    paths = (modules.find(str(each), name) for each in outside)
    return next(filter(None, paths), None)


def _installed(module: str) -> str:
    """The installed packages that may have a module, with their versions."""
    packages = metadata.packages_distributions().get(module.partition(".")[0], ())
    return ", ".join(f"{x} {metadata.version(x)}" for x in sorted(set(packages)))


def _imports(source: _Source) -> Iterator[str]:
    """Absolute names of imported modules; also imported names that may be modules."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = source.package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*filter(None, parts), *filter(None, [base])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            yield from (name.strip(".") for name in names if name.strip("."))
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = _literal(node.args[0]) if node.args else None
            if called in ("import_module", "__import__") and first:
                yield first.lstrip(".")


def _literals(tree: ast.AST) -> Iterator[str]:
    """Literals that may be the name of a file."""
    for node in ast.walk(tree):
        text = _literal(node)
        if text and len(text) <= _LONGEST_NAME and text.isprintable():
            yield text


def _variables(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Subscript) and _is_environ(node.value):
            name = _literal(node.slice)
        elif isinstance(node, ast.Compare) and _is_environ(node.comparators[0]):
            name = _literal(node.left)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(node.func, "value", None)
            if called == "getenv" or (owner is not None and _is_environ(owner)):
                name = _literal(node.args[0])
        if name:
            yield name


def _is_environ(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None

"""What the source of a user's module shows to be wrong, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from strategos.components.user_code import modules
from strategos.components.wording import nearest
from strategos.pipeline.config.problems import shown

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def misfit(body: Sequence[ast.stmt], name: str) -> str:
    """Why what a module defines by a name is no function that returns something.

    Args:
      body: The module's statements.
      name: A name that they bind, such as `build_model`.

    Returns:
      Half a sentence; "" if nothing is wrong with it, or it is bound in another way.
    """
    for node in body:
        if getattr(node, "name", None) == name:
            return _misfit(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            targets = node.targets
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                return "is a constant, not a function"
    return ""


def _misfit(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef):
        return "is a class, not a function"
    if isinstance(node, ast.AsyncFunctionDef):
        return "is an `async` function, which nothing awaits"
    if not isinstance(node, ast.FunctionDef):
        return ""
    inner = list(_own(node))
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inner):
        return "yields values instead of returning one"
    does = [each for each in node.body if not _is_left_open(each)]
    returns = any(isinstance(each, ast.Return) and each.value for each in inner)
    return "returns nothing" if does and not returns else ""


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside of it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _INNER):
            yield child
            yield from _own(child)


def _is_left_open(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, `...`, `pass` or `raise`."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass | ast.Raise)


def import_problems(path: Path, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yields each import of a package that this machine lacks, and what to do.

    Imports within `try`, `if` and functions are not looked at, nor is a module that
    changes `sys.path`.

    Args:
      path: The module.
      body: Its statements.
    """
    if any(isinstance(n, ast.Attribute) and n.attr == "path" for n in _names(body)):
        return
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.level:
            if not (path.parent / "__init__.py").is_file():
                yield (
                    f"{shown(path)}:{node.lineno}: a relative import, and its folder "
                    "is no package",
                    f"Write `from {node.module or 'MODULE'} import …`.",
                )
        elif isinstance(node, ast.ImportFrom | ast.Import):
            named = [each.name for each in node.names]
            if isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            for root in dict.fromkeys(each.partition(".")[0] for each in named):
                if not _exists(root, path.parent):
                    yield _not_installed(path, node.lineno, root)


def _names(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The attributes `sys.…` in a module."""
    for statement in body:
        for node in ast.walk(statement):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Name) and value.id == "sys":
                yield node


def _exists(root: str, folder: Path) -> bool:
    if root in sys.stdlib_module_names or any(folder.glob(f"{root}.*")):
        return True
    try:
        return (folder / root).is_dir() or importlib.util.find_spec(root) is not None
    except (ImportError, ValueError):
        return True  # such as `__main__`: nothing is known


def _not_installed(path: Path, line: int, root: str) -> tuple[str, str]:
    near = nearest(root, modules.local_modules(str(path.parent)))
    install = f"Install it into {shown(sys.prefix)}, or remove the import."
    return (
        f"{shown(path)}:{line}: imports `{root}`, which is not installed",
        f"Did you mean `{near}`?" if near else install,
    )

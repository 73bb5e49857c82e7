"""Finds errors in the source of a user's module, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from strategos.components.errors import UserError
from strategos.components.user_code import modules
from strategos.components.wording import choices, did_you_mean
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INNER = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class ModuleSource:
    """The definitions of a user module; `*` among `names` stands for unknown names."""

    path: Path
    names: frozenset[str]
    functions: tuple[str, ...]
    body: list[ast.stmt]


def read(config: Config, key: str, module: str) -> ModuleSource | UserError | None:
    """Parses a module of the user.

    Args:
      config: The effective settings.
      key: The key that names the module.
      module: Its name.

    Returns:
      The module, or the problem with it; None if it is not Python source.
    """
    path = modules.find(str(config.folder), module)
    if path is None and module.partition(".")[0] in sys.stdlib_module_names:
        return config.problem(
            key,
            f"`{module}` is a module of Python, and no other one is in "
            f"{shown(config.folder)}",
            remedy="Name a module of your own, such as `model`.",
        )
    path = path or _installed(module)
    if path is None:
        return _no_module(config, key, module)
    if path.suffix != ".py":
        return None
    try:
        body = ast.parse(importlib.util.decode_source(path.read_bytes())).body
    except (OSError, SyntaxError, ValueError) as error:
        return _unreadable_module(config, key, path, error)
    functions = tuple(node.name for node in body if isinstance(node, _FUNCTIONS))
    return ModuleSource(path, frozenset(_defined(body)), functions, body)


def misfit(body: Sequence[ast.stmt], name: str) -> str:
    """Says why a name of a module is not bound to a function that returns a value.

    Args:
      body: The module's statements.
      name: A name that they bind, e.g. `build_model`.

    Returns:
      Half a sentence, e.g. "is a constant, not a function"; "" if nothing is wrong, or
      the name is bound in another way.
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
    """Yields the nodes of a function, without nodes of functions inside of it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _INNER):
            yield child
            yield from _own(child)


def _is_left_open(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, `...`, `pass` or `raise`."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass | ast.Raise)


def loops_over_steps(body: Sequence[ast.stmt]) -> int | None:
    """The line where `run_fn` calls `loop.steps()`; None if it may use `loop.train`.

    Args:
      body: The module's statements.
    """
    calls = [x for each in body for x in ast.walk(each) if isinstance(x, ast.Call)]
    if any(isinstance(x.func, ast.Attribute) and x.func.attr == "train" for x in calls):
        return None
    called = ("loop.steps()", "context.loop.steps()")
    return next((x.lineno for x in calls if ast.unparse(x) in called), None)


def import_problems(path: Path, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yields (error, remedy) for each import of a package that is not installed.

    Imports within `try`, `if` and functions are not checked, nor is a module that uses
    `sys.path`.

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
                if not any(_exists(root, each) for each in _folders(path)):
                    yield _not_installed(path, node.lineno, root)


def _names(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The attributes `sys.…` in a module."""
    for statement in body:
        for node in ast.walk(statement):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Name) and value.id == "sys":
                yield node


def _folders(path: Path) -> Iterator[Path]:
    """The folder of a module, and those around it up to the outermost package's.

    One of them is the YAML's folder, which may be a package itself (`tfx template copy`
    makes one): modules are imported from there.
    """
    folder = path.parent
    yield folder
    while (folder / "__init__.py").is_file():
        folder = folder.parent
        yield folder


def _exists(root: str, folder: Path) -> bool:
    if root in sys.stdlib_module_names or any(folder.glob(f"{root}.*")):
        return True
    try:
        return (folder / root).is_dir() or importlib.util.find_spec(root) is not None
    except (ImportError, ValueError):
        return True  # such as `__main__`: nothing is known


def _not_installed(path: Path, line: int, root: str) -> tuple[str, str]:
    local = modules.local_modules(str(path.parent))
    install = f"Install it into {shown(sys.prefix)}, or remove the import."
    return (
        f"{shown(path)}:{line}: imports `{root}`, which is not installed",
        did_you_mean(root, local, install),
    )


def _unreadable_module(
    config: Config, key: str, path: Path, error: Exception
) -> UserError:
    if isinstance(error, OSError):
        message = f"{shown(path)} cannot be read: {error.strerror}"
        remedy = "Make it readable."
    elif isinstance(error, UnicodeDecodeError):
        message = f"{shown(path)} is not {error.encoding} text (byte {error.start})"
        remedy = "Save the file as UTF-8."
    else:
        line = getattr(error, "lineno", None) or 1
        message = f"{shown(path)}:{line}: is not valid Python: {error.args[0]}"
        remedy = "Correct that line."
    return config.problem(key, message, remedy=remedy)


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """Yields the names that a module's statements bind; `*` for a star import."""
    for node in body:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _defined(handler.body)


def _installed(module: str) -> Path | None:
    """The source of an installed module; for a submodule, the folder of its package."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.has_location or not spec.origin:
        return None
    origin = Path(spec.origin)
    return origin.parent if "." in module else origin


def _no_module(config: Config, key: str, module: str) -> UserError:
    others = modules.local_modules(str(config.folder))
    if module.endswith(".py"):
        remedy = f"Write `{module[:-3]}`, without `.py`."
    else:
        path = config.folder / (module.replace(".", "/") + ".py")
        remedy = did_you_mean(module, others, f"Create {shown(path)}.")
    return config.problem(
        key,
        f"module `{module}` does not exist in {shown(config.folder)}; modules there: "
        f"{choices(others)}",
        remedy=remedy,
    )

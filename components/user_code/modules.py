"""The user's modules: found by name beside the YAML, and imported.

Nothing is built or installed: TFX's `module_file` makes a wheel per component, which
costs seconds and needs pip. A module is imported under its own name from the workload's
folder; when another workload's folder becomes the active one, the modules of the former
are forgotten, so that two workloads with a `model.py` each can meet in one process.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from strategos.components.errors import UserError

_active: str | None = None


def activate(folder: str) -> None:
    """Makes `folder` the workload whose modules `import` finds first."""
    global _active
    folder = str(Path(folder).resolve())
    if folder == _active:
        return
    if _active is not None:
        _forget(_active)
    _active = folder
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    for name in local_modules(folder):
        sys.modules.pop(name, None)


def load(folder: str, module: str) -> ModuleType:
    """Imports `module` from `folder`.

    Raises:
      UserError: The module does not exist or raises while it is imported.
    """
    activate(folder)
    try:
        return importlib.import_module(module)
    except Exception as error:
        where = Path(folder) / f"{module.replace('.', '/')}.py"
        raise UserError(
            f"{where}: cannot be imported: {type(error).__name__}: {error}"
        ) from error


def function(folder: str, module: str, name: str) -> Any:
    """The function `name` of the user's `module`.

    Raises:
      UserError: The module cannot be imported or has no such function.
    """
    loaded = load(folder, module)
    found = getattr(loaded, name, None)
    if not callable(found):
        others = sorted(
            key
            for key, value in vars(loaded).items()
            if callable(value) and getattr(value, "__module__", "") == module
        )
        raise UserError(
            f"{loaded.__file__}: has no function `{name}`. Functions found: "
            f"{', '.join(others) or 'none'}. Define `def {name}(…)` there."
        )
    return found


def takes_fn_args(folder: str, module: str) -> bool:
    """Whether the module is one for TFX's Trainer: its `run_fn` takes one argument.

    Ours is called `context`. The source is read, nothing is imported: a module may run
    TensorFlow when it is, and a strategy of several workers must be made before.
    """
    run_fn = _definition(folder, module, "run_fn")
    if run_fn is None:
        return False
    given = run_fn.args
    required = given.args[: len(given.args) - len(given.defaults)]
    return len(required) == 1 and required[0].arg != "context"


def parameters(folder: str, module: str, name: str) -> list[str] | None:
    """Parameters of the function `name`; None if the source does not define it."""
    found = _definition(folder, module, name)
    if found is None:
        return None
    given = found.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def find(folder: str, module: str) -> Path | None:
    """The source file of `module` in `folder`, or None."""
    base = Path(folder).joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def local_modules(folder: str) -> list[str]:
    """Names of the top-level modules and packages that lie in `folder`."""
    root = Path(folder)
    files = (path.stem for path in root.glob("*.py"))
    packages = (path.parent.name for path in root.glob("*/__init__.py"))
    return sorted({*files, *packages})


def _definition(folder: str, module: str, name: str) -> ast.FunctionDef | None:
    for node in _parsed(folder, module).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _parsed(folder: str, module: str) -> ast.Module:
    """The source of a module; empty where there is none to read."""
    path = find(folder, module)
    if path is None:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(module)
            path = Path(spec.origin) if spec and spec.origin else None
    if path is None or path.suffix != ".py":
        return ast.Module([], [])
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError):
        return ast.Module([], [])  # its import will say so, with file and line


def _forget(folder: str) -> None:
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if source and Path(source).is_relative_to(folder) and ".venv" not in source:
            del sys.modules[name]

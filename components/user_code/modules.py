"""Finds the user's modules by name beside the YAML, and imports them.

Nothing is built or installed: TFX's `module_file` builds a wheel per component, which
takes seconds and needs pip. A module is imported under its own name from the workload's
folder; when another workload's folder becomes active, the modules of the former folder
are unloaded, so that two workloads with a `model.py` each can share one process.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from strategos.components.errors import Place, UserError

_active: str | None = None
_lock = threading.RLock()


def activate(folder: str) -> None:
    """Makes `import` look in a workload's folder first.

    Args:
      folder: Folder of the workload's modules.
    """
    global _active
    folder = str(Path(folder).resolve())
    with _lock:  # threads of an engine import plug-ins at the same time
        if folder == _active:
            return
        forget()
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        for name in local_modules(folder):
            sys.modules.pop(name, None)
        _active = folder


def forget() -> None:
    """Unloads the modules of the workload.

    The next node that needs a module then imports it again, and so records it as used.
    """
    global _active
    with _lock:
        if _active is not None:
            _forget(_active)
        _active = None


def active() -> str | None:
    """The folder of the workload that this process imports modules from, if any."""
    return _active


def load(folder: str, module: str) -> ModuleType:
    """Imports a module of the user.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.

    Raises:
      UserError: The module does not exist or raises while it is imported.
    """
    activate(folder)
    try:
        return importlib.import_module(module)
    except UserError:
        raise
    except Exception as error:
        where = Path(folder) / f"{module.replace('.', '/')}.py"
        if getattr(error, "name", None) == module and not where.exists():
            raise UserError(
                f"module {where} not found",
                remedy="Write it, or correct its name in the YAML.",
            ) from error
        raise UserError(
            f"{where}: cannot be imported: {type(error).__name__}: {error}",
            remedy="Correct the module, or install what it imports.",
        ) from error


def function(folder: str, module: str, name: str) -> Any:
    """A function of the user's module.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      name: Name of the function.

    Raises:
      UserError: The module cannot be imported or has no such function.
    """
    loaded = load(folder, module)
    attribute = getattr(loaded, name, None)
    if not callable(attribute):
        others = sorted(
            key
            for key, value in vars(loaded).items()
            if callable(value) and getattr(value, "__module__", "") == module
        )
        raise UserError(
            f"{loaded.__file__}: has no function `{name}`. Functions found: "
            f"{', '.join(others) or 'none'}. Define `def {name}(…)` there."
        )
    return attribute


def takes_fn_args(folder: str, module: str) -> bool:
    """Whether a module is written for TFX's Trainer, with `run_fn(fn_args)`.

    The argument of a `run_fn` for Strategos is called `context`. The source is read and
    not imported: the module may run TensorFlow on import, before a strategy of several
    workers can be made.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
    """
    run_fn = _definition(folder, module, "run_fn")
    if run_fn is None:
        return False
    arguments = run_fn.args
    required = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    return len(required) == 1 and required[0].arg != "context"


def parameters(folder: str, module: str, name: str) -> list[str] | None:
    """Names of a function's parameters; None if the source does not define it.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      name: Name of the function.
    """
    definition = _definition(folder, module, name)
    if definition is None:
        return None
    arguments = definition.args
    return [
        each.arg
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    ]


def takes_one_argument(folder: str, module: str, name: str) -> bool:
    """Whether a function can be called with one argument, judged by its source.

    An argument `custom_config`, which Transform gives, does not count.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      name: Name of the function.
    """
    definition = _definition(folder, module, name)
    if definition is None or definition.decorator_list:
        return True
    arguments = definition.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    needed = names[: len(names) - len(arguments.defaults)]
    needed += [
        each.arg
        for each, default in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=True
        )
        if default is None
    ]
    takes = bool(names or arguments.vararg)
    return takes and len([x for x in needed if x != "custom_config"]) <= 1


def assignment(folder: str, module: str, name: str) -> Place:
    """Where a module assigns a name, e.g. `Shout = create_container_component(…)`.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      name: The name; without an assignment, the place has no line.
    """
    lines = (
        node.lineno
        for node in _parsed(folder, module).body
        if isinstance(node, ast.Assign)
        and any(isinstance(x, ast.Name) and x.id == name for x in node.targets)
    )
    return Place(str(find(folder, module) or module), next(lines, 0))


def find(folder: str, module: str) -> Path | None:
    """The source file of a module, or None.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module, with dots for packages.
    """
    base = Path(folder).joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def imports(folder: str, module: str, package: str) -> bool:
    """Whether a module imports a package, at its top or in a function.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      package: Name of the package, without dots.
    """
    names: list[str] = []
    for node in ast.walk(_parsed(folder, module)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append(str(node.module))
    return any(name.partition(".")[0] == package for name in names)


def local_modules(folder: str) -> list[str]:
    """Names of the top-level modules and packages in `folder`."""
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
    """The source of a module; empty if it cannot be read."""
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
        return ast.Module([], [])  # importing the file will fail with file and line


def _forget(folder: str) -> None:
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if source and Path(source).is_relative_to(folder) and ".venv" not in source:
            del sys.modules[name]

"""Plug-ins: launchers, readers, targets, metrics, gates, notifications and engines.

A registry finds the object that a name in the YAML stands for, in this order:

1. in Strategos: the table that the registry is made with;
2. in an installed package: the entry points of the registry's group;
3. in the workload: `PLUGINS` of the modules that `plugins` of the YAML names.

Usage:

    METRICS = Registry("strategos.metrics", Metric, {"auc": "strategos.…:Auc"})
    METRICS["auc"]            # imports the module, and no other one
    "gini" in METRICS         # imports no package
    METRICS.version("gini")   # "gini-metric 1.2 3f0a…", for cache keys

A package declares `[project.entry-points."strategos.metrics"] gini = "pkg.mod:Gini"`; a
module of the workload has `PLUGINS = {"strategos.metrics": {"gini": Gini}}`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Generic, TypeVar, cast

from strategos.components.errors import UserError
from strategos.components.user_code import fingerprint, modules
from strategos.components.user_code.workload_paths import WorkloadPaths

T = TypeVar("T")

HEAVY = ("tensorflow", "tfx", "apache_beam")
"""Packages that a plug-in imports in functions: they take seconds."""

_OURS = "strategos"

_workload: WorkloadPaths | None = None


def use(folder: str, names: Sequence[str]) -> None:
    """Makes the plug-ins of a workload known to this process.

    Processes of executors read them from the environment, see `WorkloadPaths`.

    Args:
      folder: Folder of the workload's modules.
      names: Modules with `PLUGINS`.

    Raises:
      UserError: A module cannot be imported, or has no `PLUGINS`; the plug-ins of the
        other modules are known.
    """
    global _workload
    usable, problems = [], []
    for name in names:
        try:
            _of_module(folder, name)
            usable.append(name)
        except UserError as error:
            problems.append(error)
    _workload = WorkloadPaths(folder=folder, plugins=tuple(usable))
    for problem in problems:
        raise problem


def forget() -> None:
    """Looks for installed packages again, at the next question."""
    _all_entry_points.cache_clear()


class Registry(Mapping[str, T], Generic[T]):
    """The plug-ins of one kind by name; the module docstring lists their sources.

    Iterating yields names, and imports no plug-in.

    Args:
      group: The group of entry points, such as `strategos.metrics`.
      kind: The class that a plug-in is an instance of.
      own: The plug-ins of Strategos, as `package.module:object`.
      classes: Whether a plug-in is a subclass of `kind` instead. Otherwise a subclass
        stands for the instance that it makes without arguments.
    """

    def __init__(
        self,
        group: str,
        kind: type[T],
        own: Mapping[str, str],
        *,
        classes: bool = False,
    ):
        self.group, self._kind, self._classes = group, kind, classes
        self.own = {
            name: metadata.EntryPoint(name, value, group) for name, value in own.items()
        }

    def __getitem__(self, name: str) -> T:
        """Imports a plug-in.

        Raises:
          KeyError: No plug-in of the registry has this name.
          UserError: The plug-in cannot be used; names its package.
        """
        if name in self.own:
            return self._checked(self.own[name].load(), name, _OURS)
        if entry := self._installed(name):
            with _problems(f"{self._called(name)} of {_package(entry)}"):
                return self._checked(entry.load(), name, _package(entry))
        for module, plugins in self._in_workload():
            if name in plugins:
                return self._checked(plugins[name], name, f"module {module}")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        installed = (each.name for each in _entry_points(self.group))
        workload = (name for _, plugins in self._in_workload() for name in plugins)
        return iter(dict.fromkeys([*self.own, *installed, *workload]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.own or any(each == name for each in self)

    def package(self, name: str) -> str:
        """The package that a plug-in comes from: `feather-reader 1.2`; "" for ours.

        Args:
          name: Name of a plug-in.
        """
        entry = None if name in self.own else self._installed(name)
        return _package(entry) if entry else ""

    def version(self, name: str) -> str:
        """The version of a plug-in's code, for cache keys; "" for ours.

        It has the package's name and version, and a hash of the sources that are not
        installed: modules of the workload, and packages that are being developed.

        Args:
          name: Name of a plug-in.
        """
        if name in self.own:
            return ""
        if entry := self._installed(name):
            hashed = fingerprint.fingerprint(os.devnull, entry.module)
            return f"{_package(entry)} {hashed}"
        folder = _paths().folder
        return next(
            f"{module} {fingerprint.fingerprint(folder, module)}"
            for module, plugins in self._in_workload()
            if name in plugins
        )

    def _installed(self, name: str) -> metadata.EntryPoint | None:
        entries = [each for each in _entry_points(self.group) if each.name == name]
        if len({each.value for each in entries}) > 1:
            packages = " and ".join(sorted(map(_package, entries)))
            raise UserError(
                f"{packages} both have the {self._called(name)}",
                remedy="Uninstall one of them.",
            )
        return entries[0] if entries else None

    def _in_workload(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        paths = _paths()
        for module in paths.plugins:
            yield module, _of_module(paths.folder, module).get(self.group, {})

    def _called(self, name: str) -> str:
        return f"plug-in `{name}` ({self.group})"

    def _checked(self, plugin: Any, name: str, package: str) -> T:
        if isinstance(plugin, type) and not self._classes:
            plugin = _instance(plugin)
        fits = (
            isinstance(plugin, type) and issubclass(plugin, self._kind)
            if self._classes
            else isinstance(plugin, self._kind)
        )
        if not fits:
            wanted = "a subclass" if self._classes else "an instance"
            raise UserError(
                f"{self._called(name)} of {package} is {plugin!r}, not {wanted} of "
                f"{self._kind.__module__}.{self._kind.__qualname__}"
            )
        return cast(T, plugin)


@functools.cache
def _instance(kind: type) -> Any:
    return kind()


@functools.cache
def _all_entry_points(path: tuple[str, ...]) -> Any:
    """The entry points of all packages on `sys.path`, which `path` is."""
    return metadata.entry_points()


def _entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    return tuple(_all_entry_points(tuple(sys.path)).select(group=group))


def _package(entry: metadata.EntryPoint) -> str:
    package = entry.dist
    return f"{package.name} {package.version}" if package else entry.module


def _paths() -> WorkloadPaths:
    return _workload or WorkloadPaths.from_environment()


def _of_module(folder: str, name: str) -> Mapping[str, Mapping[str, Any]]:
    """`PLUGINS` of a module of the workload."""
    with _problems(f"module {name}"):
        tables = getattr(modules.load(folder, name), "PLUGINS", None)
    if not isinstance(tables, Mapping):
        raise UserError(
            f"module {name} in {folder} defines no plug-ins",
            remedy='Write `PLUGINS = {"strategos.metrics": {"gini": Gini}}` there.',
        )
    return tables


@contextlib.contextmanager
def _problems(what: str) -> Iterator[None]:
    """Raises a UserError if an import fails, or imports one of the `HEAVY` packages."""
    guard = _Guard(what)
    sys.meta_path.insert(0, cast(Any, guard))
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{what} cannot be imported: {type(error).__name__}: {error}",
            remedy="Correct the plug-in, or install another version of its package.",
        ) from error
    finally:
        sys.meta_path.remove(cast(Any, guard))


class _Guard:
    """Rejects imports of `HEAVY` packages by one thread, before they run."""

    def __init__(self, what: str):
        self._what, self._thread = what, threading.get_ident()

    def find_spec(self, name: str, *_: Any) -> None:
        if name in HEAVY and threading.get_ident() == self._thread:
            raise UserError(
                f"{self._what} imports {name} at the top of a module, which takes "
                "seconds",
                remedy=f"Write `import {name}` in the functions that need it.",
            )

"""The metric classes that are installed, read from sources: nothing is imported.

TFMA and Keras take seconds to import, and a misspelled name is to be found before that.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from strategos.components.evaluation.library import names

_PACKAGES = {
    "tensorflow_model_analysis": "metrics/__init__.py",
    "tf_keras": "api/_v2/keras/metrics/__init__.py",
}
"""The file that lists the metrics, by package; TFMA's class precedes Keras's."""

_NO_METRICS = frozenset(
    {
        *("AUCCurve", "AUCSummationMethod", "Mean", "MeanMetricWrapper", "MeanTensor"),
        *("Metric", "Sum", "AttributionsMetric"),
    }
)
_INSIDE = ("metric_types", "metric_util", "metric_specs")  # modules of TFMA's own use


@functools.cache
def known() -> dict[str, Path | None]:
    """The file that defines each metric class, by name of the class; None if unknown.

    Plots are left out: they are no numbers.
    """
    files: dict[str, Path | None] = {}
    for package, listing in _PACKAGES.items():
        folder = _folder(package)
        if folder is None or not (folder / listing).is_file():
            continue
        for module, name in _imported(folder / listing):
            files.setdefault(name, _file(folder, module))
    return {
        name: path
        for name, path in files.items()
        if name not in _NO_METRICS and not name.endswith("Plot")
    }


def is_known(name: str) -> bool:
    """Whether a metric's name names an installed class, with arguments or not.

    Args:
      name: As in `evaluator.metrics`.
    """
    named = names.parsed(name)
    return named is not None and named.class_name in known()


def arguments(class_name: str) -> list[str] | None:
    """The names of a class's arguments; None if its source does not show them.

    Args:
      class_name: Name of a class among `known`.
    """
    path = known().get(class_name)
    if path is None:
        return None
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return _arguments(node)
    return None


def _arguments(definition: ast.ClassDef) -> list[str] | None:
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            if node.args.kwarg:
                return None
            named = [*node.args.args[1:], *node.args.kwonlyargs]
            return [each.arg for each in named]
    return None


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _imported(listing: Path) -> Iterator[tuple[str, str]]:
    """Yields the module and the name of each class that a file imports."""
    for node in ast.parse(listing.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.rpartition(".")[2] in _INSIDE:
                continue
            for alias in node.names:
                # Functions begin with small letters there, constants have `_`.
                called = alias.asname or alias.name
                if alias.name[0].isupper() and names.parsed(called):
                    yield node.module, called


def _file(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return path if path.is_file() else None

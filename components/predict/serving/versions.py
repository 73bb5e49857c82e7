"""The versions of a model that a server answers with, loaded in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.predict.model import Model
from strategos.components.push_targets import targets

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2

STABLE, CANARY = "stable", "canary"
"""Labels of versions: the newest pushed one, and the one on trial."""


class UnknownVersionError(Exception):
    """No version has the number or the label that a request names."""


class Source(Protocol):
    """Where versions are: a `Target`, or one model."""

    def versions(self) -> list[int]:
        """Numbers of the versions, ascending."""

    def newest(self) -> int | None:
        """The version that a model server loads."""

    def serves(self, version: int) -> bool:
        """Whether a version is complete."""

    def path(self, version: int) -> str:
        """The folder or URL of a version."""


class OneModel:
    """A folder with one SavedModel, as a source of one version.

    Args:
      folder: The SavedModel. Its name is the version, or else the version is 1.
    """

    def __init__(self, folder: Path):
        folder = folder.absolute()
        self._folder = folder
        self._version = targets.version_of(folder.name) or 1

    def versions(self) -> list[int]:
        """See `Source`."""
        return [self._version] if self.serves(self._version) else []

    def newest(self) -> int | None:
        """See `Source`."""
        return next(iter(self.versions()), None)

    def serves(self, version: int) -> bool:
        """See `Source`."""
        return (self._folder / exported.SAVED_MODEL).is_file()

    def path(self, version: int) -> str:
        """See `Source`."""
        return str(self._folder)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A loaded version.

    Attributes:
      number: Number of the version.
      model: The model.
      signatures: The SavedModel's SignatureDefs by name.
      key: Identifies the files that were loaded.
      seconds: Time of the load.
    """

    number: int
    model: Model
    signatures: Mapping[str, meta_graph_pb2.SignatureDef]
    key: tuple[Any, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Change:
    """A change that `Versions.refresh` has found.

    Attributes:
      label: The label with another version.
      loaded: The version that answers from now on; None for none.
      problem: Why the newest version does not load; the former one still answers.
    """

    label: str
    loaded: Loaded | None = None
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a version, as ModelService of TensorFlow Serving reports it.

    Attributes:
      number: Number of the version.
      problem: Why the version does not load; "" if it is available.
    """

    number: int
    problem: str = ""


class Versions:
    """The versions of one model by number and by label.

    A request keeps the version that it began with, also if another one becomes the
    newest meanwhile: nothing is unloaded while a request needs it. Memory holds the
    versions that `refresh` has loaded, and the last of all others that was asked for.

    Args:
      name: Name of the model in requests.
      sources: Where the versions of a label are; `STABLE` is the first.
    """

    def __init__(self, name: str, sources: Mapping[str, Source]):
        self.name = name
        self._sources = dict(sources)
        self._live: dict[str, Loaded] = {}
        self._other: Loaded | None = None
        self._problems: dict[str, tuple[Any, State]] = {}
        self._follows = False
        self._loading = threading.Lock()

    def get(self, number: int | None = None, label: str | None = None) -> Loaded:
        """A version, loaded; by default the newest one.

        Args:
          number: Number of the version.
          label: `STABLE` or `CANARY`, in place of a number.

        Raises:
          UnknownVersionError: No such version exists.
          UserError: The version does not load.
        """
        if number is None:
            version = self._labelled(label or STABLE)
            if isinstance(version, Loaded):
                return version
            number = version
        for live in tuple(self._live.values()):
            if live.number == number:
                return live
        return self._load(self._source_of(number), number)

    def states(
        self, number: int | None = None, label: str | None = None
    ) -> list[State]:
        """The state of a version; without number and label, of those with a label.

        Raises:
          UnknownVersionError: No such version exists.
        """
        if number is not None:
            self._source_of(number)
            return [State(number)]
        if label is not None:
            return [State(_number(self._labelled(label)))]
        by_number = {}
        for each in self._sources:
            with contextlib.suppress(UnknownVersionError):
                number = _number(self._labelled(each))
                by_number[number] = State(number)
        for _, state in tuple(self._problems.values()):
            by_number.setdefault(state.number, state)
        if not by_number:
            raise UnknownVersionError(f"{self.name} has no version")
        return [by_number[number] for number in sorted(by_number, reverse=True)]

    def refresh(self) -> Iterator[Change]:
        """Loads the newest version of each label, which answers from then on.

        Until the first call, the newest version is found and loaded by each request.

        Yields:
          Each change, after it took place.
        """
        self._follows = True
        for label, source in self._sources.items():
            number, live = source.newest(), self._live.get(label)
            if number is None:
                self._problems.pop(label, None)
                if self._live.pop(label, None):
                    yield Change(label)
                continue
            key = _key(source.path(number))
            if (live and live.key == key) or self._has_failed(label, key):
                continue
            try:
                self._live[label] = self._load(source, number)
            except UserError as error:
                self._problems[label] = key, State(number, str(error))
                yield Change(label, problem=str(error))
                continue
            self._problems.pop(label, None)
            yield Change(label, self._live[label])

    def _has_failed(self, label: str, key: tuple[Any, ...]) -> bool:
        return label in self._problems and self._problems[label][0] == key

    def _labelled(self, label: str) -> Loaded | int:
        """The version of a label: loaded by `refresh`, or its number."""
        live = self._live.get(label)
        if live is not None:
            return live
        number = None
        if label in self._sources and not self._follows:
            number = self._sources[label].newest()
        if number is None:
            raise UnknownVersionError(f"{self.name} has no {label} version")
        return number

    def _source_of(self, number: int) -> Source:
        for source in self._sources.values():
            if number in source.versions() and source.serves(number):
                return source
        raise UnknownVersionError(f"{self.name} has no version {number}")

    def _load(self, source: Source, number: int) -> Loaded:
        path = source.path(number)
        with self._loading:
            key = _key(path)
            held = [*self._live.values(), *([self._other] if self._other else [])]
            for each in held:
                if each.key == key:
                    return each
            self._other = None  # frees the memory first
            loaded = _loaded(path, number, key)
            self._other = loaded
            return loaded


def _number(version: Loaded | int) -> int:
    return version.number if isinstance(version, Loaded) else version


def _loaded(path: str, number: int, key: tuple[Any, ...]) -> Loaded:
    started = time.monotonic()
    with targets.local(path) as folder:
        model = Model(Path(folder))
        signatures = _signatures(folder)
    return Loaded(number, model, signatures, key, time.monotonic() - started)


def _signatures(folder: str) -> dict[str, meta_graph_pb2.SignatureDef]:
    from tensorflow.core.protobuf import saved_model_pb2

    content = Path(folder, exported.SAVED_MODEL).read_bytes()
    (graph, *_) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return dict(graph.signature_def)


def _key(path: str) -> tuple[Any, ...]:
    """Identifies the files of a version: its folder may be replaced by another."""
    return (path, *inode(os.path.join(path, exported.SAVED_MODEL)))


def inode(path: str) -> tuple[int, ...]:
    """Identifies the file at a path; () if it is missing."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_mtime_ns
    return ()

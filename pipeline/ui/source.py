"""The history that the pages show: opened once it exists, read by a page at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from strategos.components.errors import UserError
from strategos.pipeline.history.roots import Place
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.ui.index import Index

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


class Source:
    """The root, its ML Metadata and the index of its runs.

    Args:
      place: The root. Nothing is opened before the first page.
    """

    def __init__(self, place: Place):
        self.root = place.root
        self.config: Config | None = place.config
        self.index = Index()
        self._place = place
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._file: tuple[int, int, bytes] | None = None

    @property
    def pipeline(self) -> str | None:
        """The name of the pipeline, if a YAML named the root."""
        return self.config.name if self.config else None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Store | None]:
        """Yields the open ML Metadata with an updated index; None if nothing has run.

        Raises:
          UserError: ML Metadata cannot be read.
        """
        with self._lock:
            try:
                store = self._open()
                if store:
                    self.index.update(store)
            except UserError:
                self._store = None  # it may be readable again
                raise
            yield store

    def _open(self) -> Store | None:
        """The open store, opened again if other or fewer records have taken its place.

        Without a transaction: closing a file of SQLite drops its locks in this process.
        """
        file = self._identity()
        if self._store is None or file != self._file:
            self.index, self._store, self._file = Index(), None, file
            with contextlib.suppress(NoRunsError):
                self._store = Store(
                    self._place.connection, root=self.root, corrects=False
                )
        return self._store

    def _identity(self) -> tuple[int, int, bytes] | None:
        """Device, number and schema cookie of the database's file; None without a file.

        `VACUUM`, with which `strategos clean --records` ends, adds 1 to the cookie
        (https://www.sqlite.org/fileformat.html, offset 40).
        """
        if not self._place.connection.HasField("sqlite"):
            return None
        try:
            with open(self._place.connection.sqlite.filename_uri, "rb") as file:
                status = os.fstat(file.fileno())
                return status.st_dev, status.st_ino, file.read(44)[40:]
        except OSError:
            return None

"""Rejects data files that change between the plan of a run and the end of reading.

The cache key, the record of the run and the manifest of its model name the content that
the plan has hashed. Other rows under that key would be taken from the cache for good.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from strategos.components.data_files import spans
from strategos.components.errors import UserError
from strategos.components.example_gen import HASHES_VARIABLE
from strategos.components.files import storage
from strategos.components.wording import choices


class Watch:
    """Compares files with the plan when they are opened, and again after reading.

    Usage:
      watch = Watch(chosen, fingerprint)
      …  # read the files
      watch.check()
    """

    def __init__(
        self,
        chosen: Sequence[spans.Span],
        fingerprint: str,
        environ: Mapping[str, str] | None = None,
    ):
        """Compares the content of the files with that of the plan.

        Args:
          chosen: Spans with their files.
          fingerprint: Of the plan, see `spans.fingerprint`; "" compares nothing.
          environ: The environment, by default this process's.

        Raises:
          UserError: The files have another content.
        """
        memo = (os.environ if environ is None else environ).get(HASHES_VARIABLE)
        watched = chosen if memo and fingerprint else ()
        self._paths = [path for span in watched for path in span.files]
        self._before = storage.statuses(self._paths)
        if watched and spans.fingerprint(chosen, Path(str(memo))) != fingerprint:
            raise _changed(self._paths)

    def check(self) -> None:
        """Compares size and time of the files with those before they were read.

        Raises:
          UserError: A file was changed or removed.
        """
        try:
            now = storage.statuses(self._paths)
        except FileNotFoundError as error:
            raise _changed([str(error.filename)]) from error
        pairs = zip(self._paths, self._before, now, strict=True)
        if changed := [path for path, before, after in pairs if before != after]:
            raise _changed(changed)


def _changed(paths: Sequence[str]) -> UserError:
    return UserError(
        "data files were changed after the start of the run",
        key="data.examples",
        received=choices(paths),
        remedy="Run again. A job that writes data should rename each file to its final "
        "name once it is complete; or let `data.complete` wait for it.",
    )

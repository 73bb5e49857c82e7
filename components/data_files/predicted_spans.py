"""The files that a node predicts: chosen before the run, found again in the step.

Needs neither TFX nor the settings, so that the first step of a compiled pipeline
chooses by the same rule as `strategos run`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from strategos.components.data_files import spans
from strategos.components.data_files.listing import select_spans
from strategos.components.errors import UserError

_KEYS = {"data.examples": "predict.data", "data.spans": "predict.spans"}


def chosen(pattern: str, which: str) -> list[spans.Span]:
    """The spans to predict.

    Args:
      pattern: `predict.data`, absolute.
      which: `predict.spans`.

    Raises:
      NoFilesError: No file matches.
      UserError: No span is selected.
    """
    with _of_section():
        return select_spans(spans.find_spans(pattern), which)


def choose(pattern: str, which: str, memo: Path | None = None) -> str:
    """The parameter `predicted_spans`: spans, versions and a hash of the files.

    Args:
      pattern: `predict.data`, absolute.
      which: `predict.spans`.
      memo: File that caches the hashes of files. Default: none.

    Raises:
      UserError: No file matches, no span is selected, or a file cannot be read.
    """
    with _of_section():
        selection = chosen(pattern, which)
        content = spans.fingerprint(selection, memo)
    numbers = [[span.number, span.version] for span in selection]
    return json.dumps({"spans": numbers, "content": content})


def files(pattern: str, parameter: str, memo: Path | None = None) -> list[str]:
    """The files of a choice, in order.

    Args:
      pattern: As for `choose`.
      parameter: From `choose`.
      memo: As for `choose`.

    Raises:
      UserError: A file is missing, or was changed after the choice.
    """
    choice = json.loads(parameter)
    with _of_section():
        selection = spans.resolve_spans(pattern, choice["spans"])
        content = spans.fingerprint(selection, memo)
    if content != choice["content"]:
        raise UserError(
            "the files to predict were changed after the start of the run",
            key="predict.data",
            received=pattern,
            remedy="Run again.",
        )
    return [file for span in selection for file in span.files]


@contextlib.contextmanager
def _of_section() -> Iterator[None]:
    """Lets errors name the keys of `predict`."""
    try:
        yield
    except UserError as error:
        raise error.but(key=_KEYS.get(error.key, error.key)) from error

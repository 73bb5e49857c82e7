"""The new spans that `gates` judges, and the usual spans to compare them with.

Needs neither TFX nor the settings, so that the first step of a compiled pipeline
decides by the same rule as `strategos run`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strategos.components.data_files import spans
from strategos.components.data_files.spans import Span
from strategos.components.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from strategos.components.data_files.listing import Listing
USUAL_SPANS = 6
"""Number of spans, the newest before those that are judged, that are usual."""


def is_new(number: int, version: int | None, seen: Mapping[int, int | None]) -> bool:
    """Whether a span was not seen yet, or only in an older version.

    Args:
      number: Number of the span.
      version: Its version; None where versions are not used.
      seen: By number, the versions that were seen.
    """
    return number not in seen or (version or 0) > (seen[number] or 0)


def compared_spans(
    data: Listing,
    new: Collection[int],
    others: Mapping[str, str] = MappingProxyType({}),
    memo: Path | None = None,
) -> str:
    """Returns the parameter `compared_spans`: the spans for SpanValidator, as JSON.

    If all spans are new, as for the first run, only the newest one is judged.

    Args:
      data: The files that `data.examples` names.
      new: Numbers of the spans that are new; if empty, the newest one is.
      others: Patterns of further data that spans are compared with, by setting.
      memo: File that caches the hashes of files. Default: none.

    Raises:
      UserError: No file matches one of `others`.
    """
    *_, newest = chosen = data.chosen
    judged = [span for span in chosen if span.number in new]
    before = [s for s in data.found if s.number < newest.number and s not in judged]
    if not judged or not before:
        judged = [newest]
        before = [span for span in data.found if span.number < newest.number]

    def described(some: Iterable[Span]) -> list[list[Any]]:
        return [[s.number, s.version, spans.fingerprint([s], memo)] for s in some]

    usual = before[-USUAL_SPANS:]
    compared: dict[str, Any] = {
        "judged": described(judged),
        "usual": described(usual),
    }
    for setting, pattern in others.items():
        try:
            files = spans.find_spans(pattern)
        except UserError as error:
            raise error.but(key=setting) from error
        compared[setting] = spans.fingerprint(files, memo)
    return json.dumps(compared)

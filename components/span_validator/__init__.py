"""SpanValidator: compares new spans with earlier ones, before ExampleGen reads them."""

from __future__ import annotations

FOLDER_VARIABLE = "STRATEGOS_SPAN_STATISTICS"
"""Names the environment variable with the folder of kept statistics; may be missing."""

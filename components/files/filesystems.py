"""Paths and URLs: the supported file systems.

Strategos reads and writes URLs by Arrow (`storage`). TensorFlow, TFX and Beam get local
copies: TensorFlow opens `gs://` only, and not with all kinds of Google's credentials.
"""

from __future__ import annotations

import os
import re

_CREDENTIALS = {
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; S3_ENDPOINT for a "
    "server other than Amazon's",
}


def is_remote(uri: str) -> bool:
    """Whether `uri` is a URL (`gs://…`, `s3://…`) and not a path on this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", uri) is not None


def unknown(uri: str) -> str | None:
    """Why a path or URL is of no supported kind; None if it is.

    Args:
      uri: Path or URL.
    """
    scheme = uri.partition("://")[0]
    if not is_remote(uri) or scheme in _CREDENTIALS:
        return None
    return f"{scheme}:// is not known; use gs://, s3:// or a folder"


def credentials(uri: str) -> str:
    """Where programs find the credentials for a remote URL, for messages.

    Args:
      uri: `gs://…` or `s3://…`.
    """
    return _CREDENTIALS[uri.partition("://")[0]]


def short(name: str) -> str:
    """A path as a user would type it here: relative if that is shorter."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative

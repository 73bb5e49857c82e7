"""Where the launcher of Kubeflow Pipelines keeps the artifacts of a step.

The launcher names artifacts by the URLs of an object store. It copies inputs to a
folder of the container before a step, and outputs from there after it, so that
executors work on local files (`LocalPathForURI` in KFP's `backend/src/v2/component`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

VARIABLE = "STRATEGOS_MOUNTS"
"""Names the folder that holds the mounts, where a step runs outside of a container."""

_FOLDERS = {"minio": "minio", "s3": "s3", "gs": "gcs"}


class Mounts:
    """The folders of a container that stand for object stores."""

    def __init__(self, environ: Mapping[str, str] = os.environ):
        """Reads the place of the folders: by default the root of the file system.

        Args:
          environ: The environment, by default this process's.
        """
        base = environ.get(VARIABLE, "").rstrip("/")
        self._folders = {
            f"{scheme}://": f"{base}/{folder}/" for scheme, folder in _FOLDERS.items()
        }

    def local(self, url: str) -> str:
        """The local path of an artifact; other texts stay as they are."""
        for scheme, folder in self._folders.items():
            if url.startswith(scheme):
                return folder + url[len(scheme) :]
        return url

    def remote(self, text: str, scheme: str) -> str:
        """The URL of a local path; other texts stay as they are.

        Args:
          text: A path that `local` returned, or a path below it.
          scheme: The scheme of the run's artifacts, such as `minio`.
        """
        folder = self._folders.get(f"{scheme}://")
        if folder and text.startswith(folder):
            return f"{scheme}://{text[len(folder) :]}"
        return text


def opened_by_workers(url: str) -> str:
    """Translates a URL of the launcher to one that workers of an engine can open.

    The launcher calls a store of the S3 protocol `minio` if it is not Amazon's.

    Args:
      url: URL or path; only `minio://…` changes, e.g. to `s3://bucket/a`.
    """
    return re.sub("^minio://", "s3://", url)


def scheme_of(url: str) -> str:
    """The scheme of a URL; "" for a path."""
    match = re.match(r"([a-z][a-z0-9+.-]*)://", url)
    return match[1] if match else ""


def mapped(value: Any, change: Any) -> Any:
    """Applies `change` to each artifact's `uri` in a JSON value.

    Args:
      value: Parsed JSON.
      change: Takes and returns a URI.
    """
    if isinstance(value, list):
        return [mapped(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: change(each)
        if key == "uri" and isinstance(each, str)
        else mapped(each, change)
        for key, each in value.items()
    }

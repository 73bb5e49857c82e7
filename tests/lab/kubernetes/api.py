"""A client for the API server: health, and server-side apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml
from failures import ClusterError
from sandbox import API_SERVER

_SECONDS = 30


class Api:
    """The API server, as its administrator.

    Args:
      keys: The folder of the certificates.
    """

    def __init__(self, keys: Path):
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy of the machine's
        self._session.verify = str(keys / "ca.crt")
        self._session.cert = (str(keys / "admin.crt"), str(keys / "admin.key"))
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}

    def is_ok(self, path: str) -> bool:
        """Whether a path answers without an error."""
        return self._session.get(API_SERVER + path, timeout=_SECONDS).ok

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at a path; empty if it does not exist."""
        answer = self._session.get(API_SERVER + path, timeout=_SECONDS)
        return answer.json() if answer.ok else {}

    def apply(self, files: Iterable[Path], namespace: str = "") -> None:
        """Creates or changes the objects of YAML files.

        Args:
          files: The files, in the order in which they are applied.
          namespace: For objects that do not name theirs.

        Raises:
          ClusterError: The API server rejects an object.
        """
        for file in files:
            for each in yaml.safe_load_all(file.read_text()):
                if each:
                    self._apply(each, namespace, file)

    def _apply(self, it: Mapping[str, Any], namespace: str, file: Path) -> None:
        plural, is_namespaced = self._resource(it["apiVersion"], it["kind"])
        path = _prefix(it["apiVersion"])
        if is_namespaced:
            path += f"/namespaces/{it['metadata'].get('namespace') or namespace}"
        answer = self._session.patch(
            f"{API_SERVER}{path}/{plural}/{it['metadata']['name']}",
            params={"fieldManager": "strategos", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            data=yaml.safe_dump(it).encode(),
            timeout=_SECONDS,
        )
        if not answer.ok:
            name = f"{it['kind']} {it['metadata']['name']}"
            raise ClusterError(f"{file.name}: {name}: {answer.text.strip()}")

    def _resource(self, version: str, kind: str) -> tuple[str, bool]:
        """The plural of a kind, and whether its objects are in namespaces."""
        if kind not in self._plurals.get(version, {}):
            listed = self.get(_prefix(version)).get("resources", ())
            self._plurals[version] = {
                each["kind"]: (each["name"], each["namespaced"])
                for each in listed
                if "/" not in each["name"]
            }
        try:
            return self._plurals[version][kind]
        except KeyError:
            raise ClusterError(
                f"the API server does not know {version} {kind}"
            ) from None


def _prefix(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"

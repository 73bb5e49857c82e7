"""Variables and volumes of pods, from settings, secrets and config maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_REFERENCES = {"secrets": "secretKeyRef", "config_maps": "configMapKeyRef"}


def variables(settings: Mapping[str, Any]) -> Iterator[Json]:
    """The environment variables of a container that are in Secrets and ConfigMaps.

    Args:
      settings: `secrets` and `config_maps`, each a list of `{name, env, path}`.
    """
    for kind, reference in _REFERENCES.items():
        for each in settings[kind]:
            for variable, key in sorted(each["env"].items()):
                source = {reference: {"name": each["name"], "key": key}}
                yield {"name": variable, "valueFrom": source}


def volumes(settings: Mapping[str, Any]) -> tuple[list[Json], list[Json]]:
    """The mounts of a container, and the volumes of its pod.

    Args:
      settings: `volumes`, a list of `{claim, path}`; `secrets` and `config_maps`.
    """
    named = [
        (f"volume-{i}", path, source)
        for i, (path, source) in enumerate(_sources(settings))
        if path
    ]
    mounts = [{"name": name, "mountPath": path} for name, path, _ in named]
    return mounts, [{"name": name, **source} for name, _, source in named]


def _sources(settings: Mapping[str, Any]) -> Iterator[tuple[str | None, Json]]:
    """A path, if there is one, and the volume that is mounted there."""
    for each in settings["volumes"]:
        claim = {"claimName": each["claim"]}
        yield each["path"], {"persistentVolumeClaim": claim}
    for each in settings["secrets"]:
        yield each["path"], {"secret": {"secretName": each["name"]}}
    for each in settings["config_maps"]:
        yield each["path"], {"configMap": {"name": each["name"]}}

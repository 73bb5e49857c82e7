"""Trains on this machine, and notes that it does."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from strategos import LAUNCHERS, Launcher, Operation, WorkerSpec


class NotedSettings(BaseModel, extra="forbid"):
    """Settings of `launcher: noted`."""

    file: str


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains as the launcher `local` does."""
    with open(operation.job["file"], "a") as file:
        file.write(f"{spec.module}\n")
    return LAUNCHERS["local"].launch(spec, operation)


LAUNCHER = Launcher(
    "noted",
    "trains here, and notes it",
    launch,
    on_this_host=True,
    settings=NotedSettings,
)

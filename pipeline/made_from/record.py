"""The record of a run's settings, code, data and stack, and the files that it names.

<state>/runs/<run>/made_from.json    the record
<state>/content/<digest>             files of the user's code, each stored once

A file larger than `LARGEST` is not stored; the record has its digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components.errors import UserError
from strategos.components.files import commit, digests, storage
from strategos.pipeline.root.state import make_state, state_folder

FILE = "made_from.json"
CONTENTS = "content"
"""Name of the folder of stored files."""
LARGEST = 64 << 20  # bytes
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class DataFile:
    """One data file of a run.

    Attributes:
      span: The number of its span; 0 without spans.
      path: Its path or URL.
      digest: The SHA-256 of its content; of an object, of its size and time.
    """

    span: int
    path: str
    digest: str


@dataclasses.dataclass(frozen=True)
class MadeFrom:
    """The origins of a run: its settings, code, data, weights and stack.

    Attributes:
      settings: The effective settings, nested, without `notify`.
      yaml: The path of the YAML file.
      code: The digest of each file of the user's code, and of the schema, by its path
        relative to the YAML's folder.
      used_by: The paths of `code` that each node's module, its imports and settings
        name, by the node's id.
      data: The data files, in the order in which the run read them.
      weights: The weights that `trainer.warm_start` names, by content; `NOTHING`
        without one, and for `latest`.
      stack: Versions, machine and environment: sections of texts by name.
      part: Whether only some nodes ran.
      origins: Where each setting that is no default was set, by key: `pipeline.yaml:12`
        or `--set`; empty in records of earlier versions.
    """

    settings: Mapping[str, Any]
    yaml: str
    code: Mapping[str, str]
    used_by: Mapping[str, Sequence[str]]
    data: Sequence[DataFile]
    weights: str
    stack: Mapping[str, Mapping[str, str]]
    part: bool = False
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Kept:
    """The record of a run, with the files that are stored beside it.

    Attributes:
      run_id: The run's id.
      made_from: The record.
      contents: The folder of the stored files, by digest: a path; for a run on a
        cluster, a URL.
    """

    run_id: str
    made_from: MadeFrom
    contents: str

    def content(self, digest: str) -> bytes | None:
        """A stored file of the user's code; None if it is missing, or was damaged."""
        try:
            content = storage.read(f"{self.contents}/{digest}")
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == digest else None


def digest_of(path: str) -> str | None:
    """The digest of a file or object as in the record; None if it cannot be read."""
    try:
        return digests.digests([path])[0]
    except (OSError, UserError):
        return None


def write(state: Path, run_id: str, made: MadeFrom, files: Mapping[str, Path]) -> None:
    """Writes the record of a run, and stores its files.

    Args:
      state: The folder of the root's local state.
      run_id: The run's id; its folder exists.
      made: The record.
      files: The path of each file of `made.code`, by the same names.

    Raises:
      OSError: Something cannot be read or written.
    """
    contents = state / CONTENTS
    make_state(contents)
    for name, path in files.items():
        stored = contents / made.code[name]
        if digest_of(str(stored)) == made.code[name] or path.stat().st_size > LARGEST:
            continue
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == made.code[name]:  # as it was hashed
            commit.write(stored, content)
    commit.write(state / "runs" / run_id / FILE, json.dumps(to_json(made)))


def to_json(made: MadeFrom) -> dict[str, Any]:
    """A record as JSON-able values, for `parsed`."""
    return {"format": _FORMAT, **dataclasses.asdict(made)}


def read(root: str, run_id: str, log: str | None = None) -> Kept:
    """Reads the record of a run.

    Args:
      root: The pipeline root.
      run_id: The run's id.
      log: The run's log, which is beside the record, for a root that was moved.

    Raises:
      UserError: The run has no record that this machine and version can read.
    """
    states = [state_folder(root), *(Path(log).parents[2:3] if log else ())]
    for state in states:
        path = state / "runs" / run_id / FILE
        if path.is_file():
            made = parsed(json.loads(path.read_text()), run_id)
            return Kept(run_id, made, str(state / CONTENTS))
    raise UserError(
        f"run {run_id}: no record of its settings and code in {states[0]}: it ran on "
        "another machine, before Strategos kept such records, or `strategos clean` "
        "removed it"
    )


def unused(state: Path, kept_runs: Iterable[str]) -> Iterator[str]:
    """Yields the stored files that the record of no run names.

    Args:
      state: The folder of the root's local state.
      kept_runs: The ids of the runs with records to keep.
    """
    named: set[str] = set()
    for run_id in kept_runs:
        path = state / "runs" / run_id / FILE
        if path.is_file():
            named |= set(json.loads(path.read_text())["code"].values())
    for path in sorted((state / CONTENTS).glob("*")):
        if path.name not in named:
            yield str(path)


def parsed(values: Mapping[str, Any], run_id: str) -> MadeFrom:
    """The inverse of `to_json`.

    Args:
      values: The values.
      run_id: The run's id, for the message.

    Raises:
      UserError: Another version has written the record, in another format.
    """
    values = dict(values)
    if (number := values.pop("format")) != _FORMAT:
        raise UserError(
            f"run {run_id}: its record has format {number}, and this version reads "
            f"{_FORMAT}",
            remedy="Use the version of Strategos that ran it, or a newer one.",
        )
    data = [DataFile(**each) for each in values.pop("data")]
    return MadeFrom(**values, data=data)

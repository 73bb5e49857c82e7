"""Uses of executions: recorded when they have run, compared before they are reused.

Under the static fingerprint of a user's module several records are kept, each with the
fingerprint of its executions and with the digests of all files, folders and environment
variables that they used. A fingerprint stands for its executions as long as every
record under it holds: the same names have the same digests. The first one is the
static fingerprint itself; when no record holds, the next one is made of the newest
record's fingerprint and of the digests found. So a file that is changed back brings
back the earlier fingerprint, and with it the cached outputs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import events
from strategos.components.files import digests
from strategos.components.user_code.uses import EVENT, FILE, FOLDER, NAME, WRITTEN
from strategos.pipeline.root.state import file_hashes, make_state

if TYPE_CHECKING:
    import ml_metadata

CODE = "code"
"""The event that describes a run's user code, see `Code`."""

_CONTEXT, _RECORDS = "used_by_code", "records"
_MOST = 100  # records under a static fingerprint; the oldest are forgotten first
_CHANGED = "changed while it was in use"
_DIGITS = 16


@dataclass(frozen=True)
class Code:
    """The facts of a run that decide which of the used files count as user code.

    Attributes:
      folder: Folder of the user's modules.
      root: The pipeline root.
      left_out: Folders with files that are no part of the code: root and targets.
      data: Globs of the data files, which are no part of the code either.
      pipeline: The pipeline's name.
      fingerprints: By node: `STATIC` or `STATIC-NEXT`, see `known`.
    """

    folder: str
    root: str
    left_out: Sequence[str] = ()
    data: Sequence[str] = ()
    pipeline: str = ""
    fingerprints: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Known:
    """The records of a module compared with the present files and variables.

    Attributes:
      fingerprint: The fingerprint for the next execution.
      holds: Whether records of earlier executions hold under it.
      changed: Names that have changed since the newest record, e.g. `file rates.csv`.
    """

    fingerprint: str
    holds: bool = False
    changed: tuple[str, ...] = ()


def known(
    store: ml_metadata.MetadataStore, node: str, static: str, code: Code
) -> Known:
    """Compares the records of a module with the present files and variables.

    Args:
      store: ML Metadata.
      node: Id of the node that runs the module.
      static: `fingerprint.fingerprint` of the module.
      code: The user's code.
    """
    records = _records(_context(store, node, static))
    if not records:
        return Known(static)
    names = sorted({(name, x["folder"]) for x in records for name in x["uses"]})
    digests = dict(zip(names, _digests(names, code), strict=True))
    changed = [
        [name for name, was in x["uses"].items() if digests[name, x["folder"]] != was]
        for x in records
    ]
    broken = {
        x["fingerprint"] for x, some in zip(records, changed, strict=True) if some
    }
    for record in reversed(records):
        if record["fingerprint"] not in broken:
            return Known(record["fingerprint"], holds=True)
    now = [records[-1]["fingerprint"], *(f"{n}\0{d}" for (n, _), d in digests.items())]
    following = _hash("\0".join(now))
    newest = next(filter(None, reversed(changed)))
    return Known(f"{static}-{following}", changed=tuple(newest))


def record_node(store: ml_metadata.MetadataStore, node: str, path: str | None) -> None:
    """Records the uses of a node's execution, according to the run's events.

    Does nothing for a node that runs no code of the user.

    Args:
      store: ML Metadata.
      node: Id of the node, which has run, whether it finished or not.
      path: The run's event file; None without one.
    """
    code = code_of_run(path) if path else None
    fingerprint = code and (code.fingerprints or {}).get(node)
    if path and code and fingerprint:
        used = [x for x in events.recorded(path, EVENT) if x.get("node") == node]
        _record(store, node, fingerprint, used, code)


def record_killed(store: ml_metadata.MetadataStore, path: str) -> None:
    """Records the uses of each node that was running when a run was killed.

    Args:
      store: ML Metadata.
      path: The event file of the run.
    """
    begun, ended = (
        {str(x["node"]) for kind in kinds for x in events.recorded(path, kind)}
        for kinds in (["node_started"], ["node_finished", "node_failed"])
    )
    for node in begun - ended:
        record_node(store, node, path)


def code_of_run(path: str) -> Code | None:
    """The user's code of a run, by its event file; None of an earlier Strategos."""
    names = [field.name for field in fields(Code)]
    recorded = events.recorded(path, CODE)
    return Code(**{name: recorded[-1][name] for name in names}) if recorded else None


def _record(
    store: ml_metadata.MetadataStore,
    node: str,
    fingerprint: str,
    used: Sequence[Mapping[str, Any]],
    code: Code,
) -> None:
    """Records the uses of an execution, unless the same uses are recorded already."""
    times: dict[str, float] = {}
    for event in used:
        for name in _names(event, code):
            times.setdefault(name, event["time"])
    written = {_moved(x[WRITTEN], x, code) for x in used if WRITTEN in x}
    names = sorted(times)
    digests = _digests([(name, code.folder) for name in names], code)
    uses = {
        name: _CHANGED if _is_younger(name, times[name], written, code) else digest
        for name, digest in zip(names, digests, strict=True)
    }
    made = {"fingerprint": fingerprint, "folder": code.folder, "uses": uses}
    static = fingerprint.partition("-")[0]
    context = _context(store, node, static)
    records = _records(context)
    if made not in records:
        _write(store, context, f"{node} {static}", [*records, made][-_MOST:])


def _names(event: Mapping[str, Any], code: Code) -> Iterable[str]:
    """Yields the used name in an event, e.g. `file rates.csv`, if it counts."""
    if NAME in event:
        yield f"{NAME} {event[NAME]}"
    for kind in (FILE, FOLDER):
        if kind in event:
            path = _moved(event[kind], event, code)
            if not _is_left_out(path, code):
                yield f"{kind} {os.path.relpath(path, code.folder)}"


def _moved(path: str, event: Mapping[str, Any], code: Code) -> str:
    """The path here of a file that another host names."""
    base = event.get("base") or code.folder
    return (
        code.folder + path[len(base) :] if f"{path}/".startswith(f"{base}/") else path
    )


def _is_left_out(path: str, code: Code) -> bool:
    paths = {path, os.path.realpath(path)}
    is_below = any(f"{p}/".startswith(f"{x}/") for p in paths for x in code.left_out)
    return is_below or any(PurePath(p).match(x) for p in paths for x in code.data)


def _is_younger(name: str, time: float, written: set[str], code: Code) -> bool:
    """Whether a file has changed since it was used, not by the execution itself."""
    kind, _, relative = name.partition(" ")
    path = os.path.normpath(os.path.join(code.folder, relative))
    if kind != FILE or path in written or not os.path.exists(path):
        return False
    return os.stat(path).st_ctime > time


def _digests(names: Sequence[tuple[str, str]], code: Code) -> list[str]:
    """The digest of each name today; "" of a file that does not exist.

    Args:
      names: Each with the folder of the user's modules when it was recorded.
      code: The user's code.
    """
    places = [_place(name.partition(" ")[2], folder, code) for name, folder in names]
    kinds = [name.partition(" ")[0] for name, _ in names]
    files = [
        place
        for kind, place in zip(kinds, places, strict=True)
        if kind == FILE and os.path.isfile(place) and os.access(place, os.R_OK)
    ]
    memo = file_hashes(code.root)
    make_state(memo.parent)
    contents = dict(zip(files, digests.digests(files, memo), strict=True))
    return [
        _digest(*each, contents, code)
        for each in zip(kinds, places, names, strict=True)
    ]


def _place(relative: str, folder: str, code: Code) -> str:
    """Where a file is today: as seen from the modules, else where it was."""
    here = os.path.normpath(os.path.join(code.folder, relative))
    return (
        here
        if os.path.exists(here)
        else os.path.normpath(os.path.join(folder, relative))
    )


def _digest(
    kind: str,
    place: str,
    name: tuple[str, str],
    contents: Mapping[str, str],
    code: Code,
) -> str:
    if kind == NAME:
        value = os.environ.get(name[0].partition(" ")[2])
        return "" if value is None else _hash(value)
    if kind == FILE:
        return contents.get(place, "")[:_DIGITS]
    try:
        listed = sorted(os.listdir(place))
    except OSError:
        return ""
    own = [
        x
        for x in listed
        if not (x.startswith((".", "__pycache__")))
        and not _is_left_out(os.path.join(place, x), code)
    ]
    return _hash("\0".join(own))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _context(
    store: ml_metadata.MetadataStore, node: str, static: str
) -> mlmd.Context | None:
    return store.get_context_by_type_and_name(_CONTEXT, f"{node} {static}")


def _records(context: mlmd.Context | None) -> list[dict[str, Any]]:
    if context is None:
        return []
    return json.loads(context.custom_properties[_RECORDS].string_value)


def _write(
    store: ml_metadata.MetadataStore,
    context: mlmd.Context | None,
    name: str,
    records: Sequence[Mapping[str, Any]],
) -> None:
    if context is None:
        kind = store.put_context_type(mlmd.ContextType(name=_CONTEXT))
        context = mlmd.Context(type_id=kind, name=name)
    context.custom_properties[_RECORDS].string_value = json.dumps(records)
    store.put_contexts([context])

"""Cache keys depend on the files and variables that the user's code has used.

The compiled pipeline has the texts of `Fingerprints.in_ir` for the user's modules.
Before any key is computed, they are replaced by the fingerprints under which the
recorded uses of earlier executions still hold (`pipeline.root.uses`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import events, node_ids
from strategos.components.files import patterns
from strategos.components.files.filesystems import is_remote
from strategos.components.user_node import USER_MODULE
from strategos.components.wording import abridged
from strategos.pipeline.plan import caching
from strategos.pipeline.root import uses
from strategos.pipeline.root.state import state_folder

if TYPE_CHECKING:
    import ml_metadata

    from strategos.pipeline.config.sections import Config

_PARAMETER = {node_ids.TRANSFORM: "custom_config"}
"""The parameter that contains the fingerprint, where it is not `USER_MODULE`."""
_SHOWN = 3
_LOOKED = 20  # newest runs of a root, of all its pipelines


@dataclass(frozen=True)
class UserCode:
    """The user's code as a run has to regard it.

    Attributes:
      static: Fingerprints of the source text, its imports and the files it names.
      fingerprints: The same, or extended by the files and variables in use.
      known: For the nodes that run user code: the result of comparing its records.
    """

    static: caching.Fingerprints
    fingerprints: caching.Fingerprints
    known: Mapping[str, uses.Known]

    @classmethod
    def of(
        cls,
        config: Config,
        store: ml_metadata.MetadataStore | None,
        static: caching.Fingerprints | None = None,
    ) -> UserCode:
        """Compares recorded uses of earlier executions with the present files.

        Args:
          config: The effective settings.
          store: ML Metadata; None if nothing has run yet.
          static: The static fingerprints; computed by default.
        """
        static, code = static or caching.Fingerprints.of(config), code_of(config)
        known = {
            node: uses.known(store, node, fingerprint, code)
            if store
            else uses.Known(fingerprint)
            for node, fingerprint in static.by_node().items()
        }
        now = {node: each.fingerprint for node, each in known.items()}
        return cls(static, static.replaced(now), known)

    def apply(self, ir: Any) -> None:
        """Writes the fingerprints into the compiled pipeline, in place."""
        compiled = self.static.in_ir().by_node()
        for node in (each.pipeline_node for each in ir.nodes):
            name = node.node_info.id
            if name in compiled:
                parameter = _PARAMETER.get(name, USER_MODULE)
                value = node.parameters.parameters[parameter].field_value
                value.string_value = value.string_value.replace(
                    compiled[name], self.known[name].fingerprint
                )

    @property
    def unknown(self) -> frozenset[str]:
        """The nodes that must run: no earlier execution's uses are known to hold."""
        return frozenset(node for node, each in self.known.items() if not each.holds)

    def report(self, config: Config) -> None:
        """Reports why nodes run again, and the user's code for readers of events."""
        for node, each in self.known.items():
            if each.changed:
                names = [name.partition(" ")[2] for name in each.changed]
                events.emit(
                    "note",
                    message=f"{node} runs again, because what its code uses has "
                    f"changed: {abridged(names, _SHOWN)}",
                )
        fingerprints = {node: each.fingerprint for node, each in self.known.items()}
        code = dataclasses.replace(code_of(config), fingerprints=fingerprints)
        events.emit(uses.CODE, **dataclasses.asdict(code))


def code_of(config: Config) -> uses.Code:
    """The user's code of `config`, without fingerprints."""
    folder = Path(config.folder).resolve()
    places = (
        config.run.root,
        *(config.pusher.folders.values() if config.pusher else ()),
    )
    local_copies = str(state_folder(config.run.root))  # of artifacts in a remote root
    here = [each for each in (*places, local_copies) if not is_remote(each)]
    left_out = {*here, *(str(Path(each).resolve()) for each in here)}
    data = (config.data.examples, *config.other_data.values())
    return uses.Code(
        folder=str(folder),
        root=config.run.root,
        left_out=tuple(sorted(left_out)),
        data=tuple(patterns.to_glob(each) for each in data),
        pipeline=config.name,
    )


def record_killed(config: Config, store: ml_metadata.MetadataStore, run: str) -> None:
    """Records the uses of nodes that ran when the last run was killed.

    Their checkpoints may be resumed if these files and variables are unchanged.

    Args:
      config: The effective settings.
      store: ML Metadata.
      run: Id of this run.
    """
    folder = state_folder(config.run.root) / "runs"
    earlier = sorted(x.name for x in folder.iterdir() if x.name < run)
    for name in reversed(earlier[-_LOOKED:]):
        path = folder / name / "events.jsonl"
        code = uses.code_of_run(str(path)) if path.is_file() else None
        if code is not None and code.pipeline == config.name:
            uses.record_killed(store, str(path))
            return

"""Runs of states between two runs, in a folder of their own, each made once.

FOLDER/bisect.json   which runs are bisected, and the result of each state
FOLDER/content/      the files of the code of all states, by digest
FOLDER/workload/     the newest state, as `reproduction` writes it; FOLDER/data too
FOLDER/root/         the root of all runs: its cache serves nodes that did not change
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components import node_ids, worker_process
from strategos.components.errors import BadInputError, PassingError, UserError
from strategos.components.files import commit
from strategos.components.runtime_parameters import NOTHING
from strategos.components.wording import cut, duration
from strategos.pipeline import api
from strategos.pipeline.comparing import delta_debugging, reproduction, separable
from strategos.pipeline.made_from import record
from strategos.pipeline.made_from.record import Kept
from strategos.pipeline.plan import caching

_FILE = "bisect.json"
_WIDTH = 70  # characters of a state's name
_Outcome = Mapping[str, Any]


def open_folder(folder: Path, good: str, bad: str) -> dict[str, _Outcome]:
    """Makes a folder for the runs between two runs, or opens it again.

    Args:
      folder: The folder.
      good: The id of the first run.
      bad: The id of the second run.

    Returns:
      The outcomes of the states that ran there before.

    Raises:
      BadInputError: The folder has something else.
    """
    pair = {"good": good, "bad": bad}
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / _FILE).read_text())
        if {key: kept[key] for key in pair} == pair:
            return dict(kept["tried"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError(
            f"{folder} exists already, and is no folder of `strategos bisect {good} "
            f"{bad}`",
            remedy="Name another folder with `--to`.",
        )
    try:
        (folder / "content").mkdir(parents=True)
        commit.write(folder / _FILE, json.dumps({**pair, "tried": {}}))
    except OSError as error:
        raise BadInputError(f"{folder} cannot be made: {error.strerror}") from None
    return {}


@dataclasses.dataclass
class Trials:
    """Runs of the first state with some of the changes.

    Attributes:
      folder: From `open_folder`.
      first: The first state.
      metric: The metric that is compared.
      most: Largest number of runs that `value` makes.
      tried: From `open_folder`.
      made: The number of runs that `value` made.
    """

    folder: Path
    first: separable.State
    metric: str
    most: int
    tried: dict[str, _Outcome]
    made: int = 0

    def end(self, name: str, changes: Sequence[separable.Change]) -> float:
        """The metric of one of the two runs, made again; outside of `most`.

        Args:
          name: For messages.
          changes: None for the first run, all for the second.

        Raises:
          UserError: It cannot be made again.
        """
        outcome = self._outcome(changes, name)
        value = outcome["metrics"].get(self.metric)
        if value is None:
            problem = outcome["problem"] or f"{self.metric} is undefined"
            raise UserError(f"{name} cannot be made again: {problem}")
        return float(value)

    def value(self, changes: Sequence[separable.Change]) -> float | None:
        """The metric of the first state with some changes; None if it has none.

        Args:
          changes: The changes.

        Raises:
          NoMoreTriesError: `most` runs are made, and this state is not among them.
        """
        return self._outcome(changes)["metrics"].get(self.metric)

    def _outcome(self, changes: Sequence[separable.Change], name: str = "") -> _Outcome:
        state = separable.mixed(self.first, changes)
        key = _key(state)
        if key in self.tried:
            return self.tried[key]
        if not name:
            if self.made == self.most:
                raise delta_debugging.NoMoreTriesError
            self.made += 1
            names = cut(", ".join(each.name for each in changes), _WIDTH)
            name = f"{self.made}/{self.most}  {names}"
        print(name, end="", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            outcome = self._run(state)
        except BaseException:
            print(file=sys.stderr)
            raise
        spent = duration(time.monotonic() - started)
        print(f": {self._said(outcome)} ({spent})", file=sys.stderr, flush=True)
        self.tried[key] = outcome
        kept = json.loads((self.folder / _FILE).read_text())
        commit.write(self.folder / _FILE, json.dumps({**kept, "tried": self.tried}))
        return outcome

    def _said(self, outcome: _Outcome) -> str:
        value = outcome["metrics"].get(self.metric)
        if value is not None:
            return f"{self.metric} {value:.6g}"
        return cut(outcome["problem"] or f"{self.metric} is undefined", _WIDTH)

    def _run(self, state: separable.State) -> _Outcome:
        try:
            with worker_process.log_kept_back():
                result = api.run(
                    self._write(state),
                    to_node=node_ids.EVALUATOR,
                    sets={"run.report": False},
                )
        except PassingError:
            raise
        except UserError as error:  # the changes do not go without others
            return {"metrics": {}, "problem": self._on_a_line(str(error))}
        if isinstance(result.error, PassingError):
            raise result.error
        problem = self._on_a_line(result.run.cause or "") or None
        return {"metrics": result.run.metrics, "problem": problem}

    def _on_a_line(self, text: str) -> str:
        return " ".join(text.replace(f"{self.folder}/workload/", "").split())

    def _write(self, state: separable.State) -> Path:
        for name in ("workload", "data"):
            if (self.folder / name).exists():
                shutil.rmtree(self.folder / name)
        contents = self.folder / record.CONTENTS
        for name, digest in state.made_from.code.items():
            path = contents / digest
            if not path.exists():
                commit.write(path, state.code[name])
        kept = Kept("between two runs", state.made_from, str(contents))
        return reproduction.write(kept, self.folder, NOTHING)


def _key(state: separable.State) -> str:
    """A digest of everything that the metrics of a state depend on."""
    made = state.made_from
    data = [(file.span, file.path, file.digest) for file in made.data]
    parts = [made.settings, made.code, data, caching.stack_versions()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

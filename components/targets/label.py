"""The label of a pipeline: one column, or several columns of 0 and 1.

Settings, execution properties and a `WorkerSpec` hold the label as text, see `text`.
Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from strategos.components.wording import abridged

_SHOWN = 6


@dataclass(frozen=True)
class Label:
    """The columns, or features that `preprocessing_fn` makes, that a model predicts.

    Attributes:
      columns: One name; or several, whose values 0 and 1 are the classes of a row.
    """

    columns: tuple[str, ...]

    @classmethod
    def of(cls, setting: str | Sequence[str]) -> Label:
        """Reads a label: a name, a list of names, or the text of either.

        Args:
          setting: A value of `label`, or `Label.text`.
        """
        if not isinstance(setting, str):
            return cls(tuple(setting))
        if setting.startswith('["'):
            try:
                return cls(tuple(json.loads(setting)))
            except json.JSONDecodeError:
                pass  # the name of a column
        return cls((setting,))

    @property
    def text(self) -> str:
        """The label as text: the name of one column, or a JSON list of names."""
        if len(self.columns) == 1:
            return self.columns[0]
        return json.dumps(self.columns, ensure_ascii=False)

    @property
    def name(self) -> str:
        """The names for people: `rain`, or `rain, wind and 3 more`."""
        return abridged(list(self.columns), _SHOWN)

    @property
    def is_several(self) -> bool:
        """Whether the label is several columns."""
        return len(self.columns) > 1

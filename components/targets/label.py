"""The label of a pipeline: a column, several columns of 0 and 1, or several heads.

Settings, execution properties and a `WorkerSpec` hold the label as text, see `text`.
Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from strategos.components.wording import abridged

_SHOWN = 6
_T = TypeVar("_T")


@dataclass(frozen=True)
class Label:
    """The columns, or features that `preprocessing_fn` makes, that a model predicts.

    Attributes:
      columns: One name; several, whose values 0 and 1 are the classes of a row; or a
        name for each of `outputs`, where a name may occur again.
      outputs: The outputs of a model with several heads, each of which learns the
        column in the same place; () for a model with one head.
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, setting: str | Sequence[str] | Mapping[str, str]) -> Label:
        """Reads a label: a name, a list or a mapping, or the text of one of them.

        Args:
          setting: A value of `label`, or `Label.text`.
        """
        if isinstance(setting, Mapping):
            return cls(tuple(setting.values()), tuple(setting))
        if not isinstance(setting, str):
            return cls(tuple(setting))
        if setting.startswith(('["', '{"')):
            try:
                return cls.of(json.loads(setting))
            except json.JSONDecodeError:
                pass  # the name of a column
        return cls((setting,))

    @property
    def text(self) -> str:
        """The label as text: the name of one column, or a JSON list or object."""
        if self.outputs:
            pairs = zip(self.outputs, self.columns, strict=True)
            return json.dumps(dict(pairs), ensure_ascii=False)
        if len(self.columns) == 1:
            return self.columns[0]
        return json.dumps(self.columns, ensure_ascii=False)

    @property
    def name(self) -> str:
        """The names for people: `rain`, or `rain, wind and 3 more`."""
        return abridged(list(dict.fromkeys(self.columns)), _SHOWN)

    @property
    def is_several(self) -> bool:
        """Whether the label is several columns of 0 and 1, for one head."""
        return len(self.columns) > 1 and not self.outputs

    def by_head(self, named: dict[str, _T]) -> dict[str, _T]:
        """Takes what belongs to the label's columns out of a dict; several heads only.

        Args:
          named: Tensors, specs or others by column, which lose those of the label.

        Returns:
          The same by output.
        """
        pairs = zip(self.outputs, self.columns, strict=True)
        found = {output: named[name] for output, name in pairs}
        for name in {*self.columns}:
            del named[name]
        return found

    @property
    def heads(self) -> dict[str, Label]:
        """The label of each output; {} for a model with one head."""
        pairs = zip(self.outputs, self.columns, strict=bool(self.outputs))
        return {output: Label((column,)) for output, column in pairs}

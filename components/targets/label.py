"""The label of a pipeline: a column, several of 0 and 1, several heads, or features.

Settings, execution properties and a `WorkerSpec` hold the label as text, see `text`.
Standard library only.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from strategos.components.wording import abridged

RECONSTRUCT, ALL = "reconstruct", "all"
"""The key of features that a model reconstructs, and the value for all of them."""

_SHOWN = 6
_T = TypeVar("_T")


@dataclass(frozen=True)
class Label:
    """The columns, or features that `preprocessing_fn` makes, that a model predicts.

    Attributes:
      columns: One name; several, with 0 or 1 for each class of a row; or the columns of
        `outputs` one after another, where a name may occur again.
        With `reconstructs`, transformed features; () for all of them.
      outputs: The outputs of a model with several heads; () for one head.
      widths: Number of `columns` of each of `outputs`.
      reconstructs: Whether there is no label: the model learns `columns`, which are
        features that it takes, too, such as an autoencoder.
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    reconstructs: bool = False

    @classmethod
    def of(cls, setting: str | Sequence[str] | Mapping[str, Any]) -> Label:
        """Reads a label: a name, a list or a mapping, or the text of one of them.

        Args:
          setting: A value of `label`, or `Label.text`.
        """
        if isinstance(setting, Mapping):
            if [*setting] == [RECONSTRUCT]:
                features = setting[RECONSTRUCT]
                columns = () if features == ALL else tuple(features)
                return cls(columns, reconstructs=True)
            heads = [cls.of(value).columns for value in setting.values()]
            columns = tuple(itertools.chain.from_iterable(heads))
            return cls(columns, tuple(setting), tuple(map(len, heads)))
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
        if self.reconstructs:
            features = self.columns or ALL
            return json.dumps({RECONSTRUCT: features}, ensure_ascii=False)
        if self.outputs:
            heads = {
                output: own.columns if own.is_several else own.text
                for output, own in self.heads.items()
            }
            return json.dumps(heads, ensure_ascii=False)
        if len(self.columns) == 1:
            return self.columns[0]
        return json.dumps(self.columns, ensure_ascii=False)

    @property
    def name(self) -> str:
        """The names for people: `rain`, or `rain, wind and 3 more`."""
        if not self.columns:
            return "all features"
        return abridged(list(dict.fromkeys(self.columns)), _SHOWN)

    @property
    def is_several(self) -> bool:
        """Whether the label is several columns of 0 and 1, for one head."""
        return len(self.columns) > 1 and not (self.outputs or self.reconstructs)

    @property
    def withheld(self) -> tuple[str, ...]:
        """The columns that the model does not get, because they are unknown later."""
        return () if self.reconstructs else self.columns

    def among(self, features: Iterable[str]) -> Label:
        """The label with the names of its features, where it has all of them.

        Args:
          features: The transformed features that the model may take.
        """
        if not self.reconstructs or self.columns:
            return self
        return replace(self, columns=tuple(sorted(features)))

    def by_head(
        self, named: dict[str, _T], take: Callable[[dict[str, _T], Label], _T]
    ) -> dict[str, _T]:
        """Takes the entries of the label's columns out of a dict; several heads only.

        Args:
          named: Tensors, specs or others by column, which lose those of the label.
          take: Takes the entries of one head's label out of such a dict.

        Returns:
          The result of `take` by output.
        """
        by_output = {output: take({**named}, own) for output, own in self.heads.items()}
        for name in {*self.columns}:
            del named[name]
        return by_output

    @property
    def heads(self) -> dict[str, Label]:
        """The label of each output; {} for a model with one head."""
        columns = iter(self.columns)
        pairs = zip(self.outputs, self.widths, strict=True)
        return {
            output: Label(tuple(itertools.islice(columns, width)))
            for output, width in pairs
        }

    @property
    def by_output(self) -> dict[str, Label]:
        """The label of each output; of a model with one head, this one under ""."""
        return self.heads or {"": self}

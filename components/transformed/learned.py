"""The features that a model reconstructs, among those that `preprocessing_fn` makes."""

from __future__ import annotations

from strategos.components.schema_file import read_schema
from strategos.components.targets.label import Label


def label(text: str, graph: str, weight: str = "") -> str:
    """The label with the names of its features, where it has all of them.

    Args:
      text: The label, as `Label.text`.
      graph: Folder of Transform's output graph.
      weight: The feature that weights the rows, which a model does not get; "" for
        none.

    Returns:
      `Label.text`.
    """
    target = Label.of(text)
    if not target.reconstructs or target.columns:
        return text
    made = read_schema(f"{graph}/transformed_metadata/schema.pbtxt").feature
    return target.among({feature.name for feature in made} - {weight}).text

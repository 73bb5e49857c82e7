"""Stores the meaning of the rows of a model's tables beside its weights."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorflow.io import gfile

from strategos.components.trainer.model.tables.relations import Relation, Tables
from strategos.components.transformed.feature_ids import FeatureIds


def write(tables: Tables, path: str) -> None:
    """Writes the meaning of rows.

    Args:
      tables: The meaning of the rows of the model's tables.
      path: Prefix of the files with the model's weights.
    """
    names = sorted(tables.ids)
    arrays: dict[str, Any] = {}
    for number, name in enumerate(names):
        feature_ids = tables.ids[name]
        if feature_ids.entries is not None:
            parts = {
                "ids": feature_ids.ids,
                "others": feature_ids.others,
                **_packed(feature_ids.entries),
            }
            arrays |= {f"{number}.{part}": array for part, array in parts.items()}
    described = {
        "features": {
            name: {
                "digest": tables.ids[name].digest,
                "looks_up": tables.ids[name].looks_up,
                "is_one_hot": tables.ids[name].is_one_hot,
                "is_discrete": tables.ids[name].is_discrete,
                "varies": tables.ids[name].varies,
            }
            for name in names
        },
        "inputs": list(tables.inputs),
        "label": tables.label,
        "tables": [[dataclasses.astuple(x) for x in each] for each in tables.relations],
    }
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    with gfile.GFile(f"{path}.vocabularies.npz", "wb") as file:
        file.write(content.getvalue())
    with gfile.GFile(f"{path}.vocabularies.json", "w") as file:
        file.write(json.dumps(described))


def read(path: str) -> Tables | None:
    """Reads the meaning of rows.

    Args:
      path: Prefix of the files with the weights.

    Returns:
      The meaning; None if a version that did not store it wrote the weights.
    """
    if not gfile.exists(f"{path}.vocabularies.json"):
        return None
    with gfile.GFile(f"{path}.vocabularies.json") as file:
        described = json.loads(file.read())
    with gfile.GFile(f"{path}.vocabularies.npz", "rb") as file:
        arrays = dict(np.load(io.BytesIO(file.read())))
    ids = {
        name: _ids(number, facts, arrays)
        for number, (name, facts) in enumerate(described["features"].items())
    }
    relations = [[Relation(*x) for x in each] for each in described["tables"]]
    label = described.get("label", "")  # absent in older files
    return Tables(ids, relations, described["inputs"], label)


def _ids(
    number: int, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> FeatureIds:
    if f"{number}.ids" not in arrays:
        return FeatureIds(**facts)
    ids, others = arrays[f"{number}.ids"], arrays[f"{number}.others"]
    return FeatureIds(
        **facts, entries=_unpacked(number, arrays), ids=ids, others=others
    )


def _packed(entries: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays that hold entries of any length, so that NumPy pickles no objects."""
    if entries.dtype != object:
        return {"entries": entries}
    lengths = np.array([len(x) for x in entries.tolist()], np.int64)
    text = np.frombuffer(b"".join(entries.tolist()), np.uint8)
    return {"text": text, "lengths": lengths}


def _unpacked(number: int, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if f"{number}.entries" in arrays:
        return arrays[f"{number}.entries"]
    text = arrays[f"{number}.text"].tobytes()
    ends = arrays[f"{number}.lengths"].cumsum().tolist()
    entries = np.empty(len(ends), object)
    entries[:] = [
        text[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return entries

"""Makes the data of this workload: pieces of two photographs, as JPEGs in Parquet.

The photographs are part of scikit-learn: a temple in China, and a flower. Each row is a
piece of 40 x 40 pixels: `piece` (its name), `image` (an encoded JPEG), `flower` (1 for
a piece of the flower).
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SIZE = 40


def prepare(folder: str | Path) -> None:
    """Writes `folder/data/photos/photos.parquet`, atomically."""
    from sklearn.datasets import load_sample_images

    rows = []
    for label, photo in enumerate(load_sample_images().images):
        rows += [
            {"piece": f"{label}-{place}", "image": _jpeg(piece), "flower": label}
            for place, piece in enumerate(pieces(photo))
        ]
    path = Path(folder, "data", "photos", "photos.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as aside:
        unfinished = Path(aside, path.name)
        pq.write_table(pa.Table.from_pylist(rows), unfinished)
        os.replace(unfinished, path)
    print(f"photos: wrote {len(rows):,} pieces to {path}")


def pieces(photo: np.ndarray) -> list[np.ndarray]:
    """Cuts a photograph into squares that do not overlap.

    Args:
      photo: uint8 [height, width, 3].

    Returns:
      Arrays, uint8 [SIZE, SIZE, 3], row by row; the rest at the edges is left out.
    """
    height, width, _ = photo.shape
    return [
        photo[top : top + SIZE, left : left + SIZE]
        for top in range(0, height - SIZE + 1, SIZE)
        for left in range(0, width - SIZE + 1, SIZE)
    ]


def _jpeg(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


if __name__ == "__main__":
    prepare(Path(__file__).parent)

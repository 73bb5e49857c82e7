"""Makes the data of this workload: handwritten digits, as Parquet files of PNGs.

Each row is an image: `index` (its number in the source, or in the part of it), `image`
(an encoded greyscale PNG), `label` (0 to 9).

- `prepare`: the 1,797 digits of 8 x 8 pixels that are part of scikit-learn.
- `prepare_mnist`: MNIST, from the usual `mnist.npz`; the environment variable MNIST is
  its path. An additional column `part` holds the part of MNIST of each image: `train`
  or `test`.
"""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

_ROWS_PER_GROUP = 4096


def prepare(folder: str | Path) -> None:
    """Writes scikit-learn's digits to `folder/data/digits/digits.parquet`."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # 0 to 16 in steps
    target = Path(folder, "data", "digits", "digits.parquet")
    write(to_table(images, digits.target), target)


def prepare_mnist(folder: str | Path) -> None:
    """Writes the images of $MNIST to `folder/data/mnist/mnist.parquet`.

    Raises:
      SystemExit: $MNIST is not the path of a file with the expected arrays.
    """
    tables = []
    for part, (images, labels) in read_mnist(os.environ.get("MNIST", "")).items():
        names = pa.array([part] * len(images))
        tables.append(to_table(images, labels).append_column("part", names))
    write(pa.concat_tables(tables), Path(folder, "data", "mnist", "mnist.parquet"))


def read_mnist(path: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Reads `mnist.npz`.

    Returns:
      By part (`train`, `test`): images, uint8 [n, height, width], and labels, int [n].

    Raises:
      SystemExit: `path` is not a file with the expected arrays.
    """
    keys = [f"{name}_{part}" for part in ("train", "test") for name in "xy"]
    try:
        with np.load(path) as file:
            arrays = {key: file[key] for key in keys}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise SystemExit(
            f"MNIST={path or '(not set)'}: {error}. Set the environment variable MNIST "
            f"to the path of mnist.npz, with the arrays {', '.join(keys)}."
        ) from error
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images.dtype != np.uint8 or images.ndim != 3 or len(images) != len(labels):
            raise SystemExit(
                f"MNIST={path}: x_{part} is {images.dtype} {list(images.shape)} with "
                f"{len(labels)} labels. Expected uint8 [n, height, width], n labels."
            )
    return {p: (arrays[f"x_{p}"], arrays[f"y_{p}"]) for p in ("train", "test")}


def to_table(images: np.ndarray, labels: np.ndarray) -> pa.Table:
    """Builds the rows of the Parquet file, one per image.

    Args:
      images: uint8 [n, height, width].
      labels: Integers [n].
    """
    return pa.table(
        {
            "index": pa.array(np.arange(len(images))),
            "image": pa.array(_encoded(images), pa.binary()),
            "label": pa.array(labels.astype(np.int64)),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """Writes `path` atomically, and prints the number of images."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as aside:
        unfinished = Path(aside, path.name)
        pq.write_table(table, unfinished, row_group_size=_ROWS_PER_GROUP)
        os.replace(unfinished, path)
    print(f"digits: wrote {table.num_rows:,} images to {path}")


def _encoded(images: np.ndarray) -> Iterator[bytes]:
    for image in images:
        png = io.BytesIO()
        Image.fromarray(image).save(png, "PNG")
        yield png.getvalue()


if __name__ == "__main__":
    prepare(Path(__file__).parent)

"""`trainer.distribution.shard: files`: each input pipeline reads only its own files.

This divides the I/O by the number of pipelines, but the rows of a global batch then
depend on that number: the loss curve no longer equals the curve of one device. An epoch
ends when the pipeline with the fewest rows has no whole batch left; each epoch has
another order, so other rows are left out. Evaluation always reads all files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.trainer.data import dataset
from strategos.components.trainer.data.batches.weights import EQUAL, Weights
from strategos.components.trainer.data.columns import Columns
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution.batch_checks import check_even
from strategos.components.wording import counted


@dataclasses.dataclass(frozen=True)
class FileShare:
    """The part of a split that one pipeline reads; used like `Split`.

    Attributes:
      split: The pipeline's own files.
      pipelines: Number of pipelines that divide the files.
      fewest: Rows of the pipeline that has the fewest.
      total: Rows of all pipelines.
    """

    split: Split
    pipelines: int
    fewest: int
    total: int

    @property
    def rows(self) -> int:
        """Rows of all pipelines that an epoch uses at most."""
        return self.fewest * self.pipelines

    @property
    def weights(self) -> Weights:
        """How much each row counts."""
        return self.split.weights

    def labels(self) -> Any:
        """The labels of this pipeline's examples if they are in memory, else None."""
        return self.split.labels()

    def steps(self, batch_size: int) -> int:
        """Global batches of an epoch, all of them whole.

        Args:
          batch_size: Rows of a global batch.
        """
        return self.fewest // (batch_size // self.pipelines)

    def shuffled(
        self,
        batch_size: int,
        *,
        replicas: int = 1,
        share: range = range(1),
        drop_last: bool = True,
        **order: Any,
    ) -> tf.data.Dataset:
        """Like `Split.shuffled`, over this pipeline's own rows.

        `drop_last` must be true: pipelines cannot complete each other's last batch.

        Args:
          batch_size: Rows of a global batch, over all pipelines.
          replicas: Replicas of all pipelines.
          share: Replicas of this pipeline.
          drop_last: True.
          **order: See `Split.shuffled`.

        Raises:
          UserError: The batch cannot be divided evenly, or the rows do not fill it.
        """
        why = "each worker reads only its own files (`distribution.shard: files`)"
        check_even(batch_size, replicas, why, ", or use `shard: rows`")
        return self.split.shuffled(
            batch_size // self.pipelines,
            replicas=len(share),
            share=range(len(share)),
            drop_last=drop_last,
            **order,
        )

    def sample(self, rows: int) -> tuple[Columns, Any]:
        """The first `rows` examples of this pipeline, as (features, label)."""
        return self.split.sample(rows)

    def reads(self, replicas: int = 1, share: range = range(1)) -> str:
        """Describes the rows and files of this pipeline, for a log line.

        Args:
          replicas: Replicas of all pipelines.
          share: Replicas of this pipeline.
        """
        own = self.split.reads(len(share), range(len(share)))
        return (
            f"{own}; by file: of {self.total:,} rows; an epoch uses {self.fewest:,} "
            f"of each of {self.pipelines} pipelines"
        )


def read(
    files: Sequence[str],
    spec: Mapping[str, Any],
    label: str,
    cache_limit: int,
    *,
    pipeline: int,
    pipelines: int,
    total: Callable[..., Sequence[float]],
    weights: Weights = EQUAL,
) -> FileShare:
    """Reads the files of one pipeline, and learns how many rows the others have.

    Must be called by all workers, as it exchanges row counts between them.

    Args:
      files: Files of all pipelines.
      spec: `tf.io` spec of the features and the label.
      label: Name of the label.
      cache_limit: Bytes of parsed examples that may be kept in memory.
      pipeline: Number of this pipeline, from 0.
      pipelines: Number of pipelines.
      total: `Agreement.total`, which sums values over the workers.
      weights: How much each row counts.

    Raises:
      UserError: There are fewer files than pipelines, or the files have no examples.
    """
    own = files_of(files, pipeline, pipelines)
    split = dataset.read(own, spec, label, cache_limit, weights=weights)
    mine = [split.rows * (number == pipeline) for number in range(pipelines)]
    rows = [round(value) for value in total(*mine)]
    used = dataclasses.replace(split, rows_per_pass=min(rows))
    return FileShare(used, pipelines, min(rows), sum(rows))


def files_of(files: Sequence[str], pipeline: int, pipelines: int) -> tuple[str, ...]:
    """The files of one pipeline; the pipelines' files are disjoint and of similar size.

    Args:
      files: Files of all pipelines.
      pipeline: Number of the pipeline, from 0.
      pipelines: Number of pipelines.

    Raises:
      UserError: There are fewer files than pipelines.
    """
    if len(files) < pipelines:
        raise UserError(
            f"the training split has {counted(len(files), 'file')} for {pipelines} "
            "workers",
            key="trainer.distribution.shard",
            received="files",
            remedy="Use `rows`, or fewer workers.",
        )
    sizes = dict(zip(files, (x.size for x in storage.statuses(files)), strict=True))
    shares: list[list[str]] = [[] for _ in range(pipelines)]
    loads = [0] * pipelines
    for file in sorted(files, key=lambda file: (-sizes[file], file)):
        lightest = min(range(pipelines), key=lambda i: (loads[i], len(shares[i])))
        shares[lightest].append(file)
        loads[lightest] += sizes[file]
    return tuple(sorted(shares[pipeline]))

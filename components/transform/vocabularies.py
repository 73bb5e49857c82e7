"""Keeps finished vocabularies if an engine repeats the end of their write.

TFT writes a vocabulary by Beam's sink of files, which deletes the destination before it
renames its own file. If a worker dies after that, an engine repeats both steps: the
first deletes the finished vocabulary, and the second finds no file to rename. Beam's
second step alone is safe to repeat: a rename replaces a file as a whole, and a file
that was already renamed is not renamed again.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.io import filebasedsink, iobase
from apache_beam.pipeline import AppliedPTransform, PTransformOverride


def keep_final(pipeline: beam.Pipeline) -> None:
    """Replaces each sink of files in a pipeline by one that deletes nothing.

    Args:
      pipeline: A pipeline that has not been run.
    """
    pipeline.replace_all([_Override()])


class _Override(PTransformOverride):
    def matches(self, applied_ptransform: AppliedPTransform) -> bool:
        """See PTransformOverride."""
        transform = applied_ptransform.transform
        return isinstance(transform, beam.io.Write) and isinstance(
            transform.sink, filebasedsink.FileBasedSink
        )

    def get_replacement_transform_for_applied_ptransform(
        self, applied_ptransform: AppliedPTransform
    ) -> beam.PTransform:
        """See PTransformOverride."""
        write: Any = applied_ptransform.transform
        return beam.io.Write(_Kept(write.sink))


class _Kept(iobase.Sink):
    """A sink of files that does not delete earlier files.

    Args:
      sink: The sink.
    """

    def __init__(self, sink: filebasedsink.FileBasedSink):
        self._sink = sink
        self.num_shards, self.skip_if_empty = sink.num_shards, sink.skip_if_empty

    def initialize_write(self) -> Any:
        """See Sink."""
        return self._sink.initialize_write()

    def open_writer(self, init_result: Any, uid: str) -> iobase.Writer:
        """See Sink."""
        return self._sink.open_writer(init_result, uid)

    def pre_finalize(self, init_result: Any, writer_results: Any) -> None:
        """Does nothing, see above."""

    def finalize_write(
        self, init_result: Any, writer_results: Any, pre_finalize_result: Any
    ) -> Any:
        """See Sink."""
        return self._sink.finalize_write(
            init_result, writer_results, pre_finalize_result
        )

"""TFRecord files of tf.Examples, with errors that name file and record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.source import MAX_ROWS, WHOLE, BadRow, Part
from strategos.components.data_files.sources.undeclared import OpenSource, in_runs
from strategos.components.errors import UserError
from strategos.components.slow_imports import pa

_FEATURES = b"\x0a"  # of an Example, and the only field that it has
_REMEDY = "The file is cut off or damaged: write or copy it again."


class TfrecordSource(OpenSource):
    """A TFRecord file of tf.Examples, such as TFX's ExampleGens and TFDS write.

    A feature that a record lacks, and one without values, is a missing value. Malformed
    is a record that is no tf.Example.
    """

    def __init__(self, path: str):
        """See `Source`."""
        self.path = path
        self._see_head()

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        head = formats.head(path)
        if not head:
            raise UserError(
                f"{path}: is empty. Remove the file, or put the data there."
            )
        formats.unpacked(path, head)

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        rows = 0
        for records in self._records():
            for run in in_runs(records, _parse, rows):
                if run.batch is None:
                    record = records[run.first - rows]
                    place = f"record {run.first + 1}"
                    bad = BadRow(place, _why(record), repr(record[:100]))
                    self.reject(run.first, bad)
                else:
                    yield from self._in_slices(run.batch)
            rows += len(records)
        if not rows:
            raise no_row(self.path)

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        from strategos.components.records import tfrecords

        every = (record for some in self._records() for record in some)
        first = pa.array(list(islice(every, rows)), pa.binary())
        formats.write_packed(path, bytes(tfrecords.frame(first)))

    def rows_of(self, part: Part) -> int:
        """See `Source`: counts the records."""
        return sum(map(len, self._records()))

    def where(self, part: Part, row: int) -> str:
        """See `Source`: the number of the record, from 1."""
        return f"record {row + 1}"

    def _records(self) -> Iterator[list[bytes]]:
        from strategos.components.records import tfrecords

        try:
            for records in tfrecords.read(self.path):
                for start in range(0, len(records), MAX_ROWS):
                    yield records[start : start + MAX_ROWS]
        except UserError as error:
            if "is damaged" not in str(error):
                raise
            raise error.but(remedy=_REMEDY) from error
        except OSError as error:
            raise UserError(formats.unreadable(self.path, error)) from error


def _parse(records: Sequence[bytes]) -> pa.RecordBatch | None:
    """The features as columns; None if a record is no Example, or types differ."""
    from tfx_bsl.coders import example_coder

    from strategos.components.data_files.sources import structs

    if not all(map(_has_features_only, records)):
        return None
    try:
        batch = example_coder.ExamplesToRecordBatchDecoder().DecodeBatch(list(records))
    except RuntimeError:
        return None
    return structs.unlisted(batch) if batch.num_columns else structs.empty(len(records))


def _has_features_only(record: bytes) -> bool:
    """Whether a record has no field besides the features of an Example.

    A SequenceExample begins like an Example: parsed as one, it would lose its lists.
    """
    position, shift, length = 1, 0, 0
    if not record:
        return True
    if record[:1] != _FEATURES:
        return False
    for byte in record[1:11]:
        length |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            break
    return position + length == len(record)


def _why(record: bytes) -> str:
    if record[:1] == _FEATURES and not _has_features_only(record):
        return "is no tf.Example, but perhaps a SequenceExample, which is not read"
    return "is no tf.Example"

"""TFRecord files of tf.Examples, with errors that name file and record."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import islice

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.reading import Reading
from strategos.components.data_files.sources.source import MAX_ROWS, WHOLE, BadRow, Part
from strategos.components.data_files.sources.undeclared import OpenSource, in_runs
from strategos.components.errors import UserError
from strategos.components.slow_imports import pa

STEP_LENGTHS = "data.step_lengths"
"""The setting that names lists with any number of values at a step."""

_OF_EXAMPLE = (1,)  # the features
_OF_SEQUENCE = {(1, 2), (2,)}  # the features of the context, if any, and the lists
_LISTS = "##lists"
_TEXT = 2  # the wire type of messages
_REMEDY = "The file is cut off or damaged: write or copy it again."


class TfrecordSource(OpenSource):
    """A TFRecord file of tf.Examples, such as TFX's ExampleGens and TFDS write.

    A feature that a record lacks, and one without values, is a missing value. A list of
    a SequenceExample is a feature with the value of each step. Malformed is a record
    that is neither.

    Args:
      path: The file.
      lengths: Lists of which a step may have any number of values: all values are one
        feature, and their number at each step is the feature `NAME_lengths`.
    """

    def __init__(self, path: str, lengths: Sequence[str] = ()):
        self.path = path
        self._parse = functools.partial(_parse, lengths=lengths)
        self._see_head()

    @classmethod
    def open(cls, path: str, reading: Reading) -> TfrecordSource:
        """See `Source`."""
        cls.check(path)
        return cls(path, reading.step_lengths)

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
            for run in in_runs(records, self._parse, rows):
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


def _parse(records: Sequence[bytes], lengths: Sequence[str]) -> pa.RecordBatch | None:
    """The features as columns; None if a record is no Example, or types differ."""
    from strategos.components.data_files.sources import structs

    fields = set(map(_fields, records))
    if not fields <= {_OF_EXAMPLE, *_OF_SEQUENCE}:
        return None
    try:
        if fields & _OF_SEQUENCE:
            batch = _sequences(list(records), lengths)
        else:
            batch = _examples(list(records))
    except RuntimeError:
        return None
    if batch is None or not batch.num_columns:
        return batch and structs.empty(len(records))
    return structs.unlisted(batch)


def _examples(records: list[bytes]) -> pa.RecordBatch:
    from tfx_bsl.coders import example_coder

    return example_coder.ExamplesToRecordBatchDecoder().DecodeBatch(records)


def _sequences(records: list[bytes], lengths: Sequence[str]) -> pa.RecordBatch | None:
    """Context and lists as columns, each of lists; None if they are not.

    Records without lists are Examples, too: both begin with their features.
    """
    from tfx_bsl.coders import sequence_example_coder

    decoder = sequence_example_coder.SequenceExamplesToRecordBatchDecoder(_LISTS)
    batch = decoder.DecodeBatch(records)
    names = [name for name in batch.schema.names if name != _LISTS]
    columns = {name: batch.column(batch.schema.get_field_index(name)) for name in names}
    lists = batch.column(batch.schema.get_field_index(_LISTS))
    for field, column in zip(lists.type, lists.flatten(), strict=True):
        values, counts = _values(column)
        field_columns = {field.name: values}
        if field.name in lengths:
            field_columns[f"{field.name}_lengths"] = counts
        elif any(count != 1 for count in counts.flatten().unique().to_pylist()):
            return None
        if not columns.keys().isdisjoint(field_columns):
            return None
        columns |= field_columns
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _values(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Lists of all values of a row, and of their number at each step.

    Args:
      column: For each row the steps, each a list; or null.
    """
    import numpy as np

    if pa.types.is_null(column.type):
        column = column.cast(pa.large_list(pa.null()))
    steps = column.flatten()
    if pa.types.is_null(steps.type):
        steps = steps.cast(pa.large_list(pa.null()))
    lengths = pa.compute.fill_null(pa.compute.list_value_length(steps), 0).to_numpy()
    counts = pa.compute.fill_null(pa.compute.list_value_length(column), 0).to_numpy()
    ends, rows = (np.concatenate([[0], np.cumsum(x)]) for x in (lengths, counts))
    missing = np.append(column.is_null().to_numpy(zero_copy_only=False), False)

    def lists(offsets: np.ndarray, values: pa.Array) -> pa.Array:
        return pa.LargeListArray.from_arrays(pa.array(offsets, mask=missing), values)

    return lists(ends[rows], steps.flatten()), lists(rows, pa.array(lengths))


def _fields(record: bytes) -> tuple[int, ...] | None:
    """Numbers of the message's fields; None if it is damaged, or has others than texts.

    A SequenceExample begins like an Example: parsed as one, it would lose its lists.
    """
    position, numbers = 0, []
    while position < len(record):
        key, length = record[position], 0
        for count, byte in enumerate(record[position + 1 : position + 11]):
            length |= (byte & 0x7F) << 7 * count
            if byte < 0x80:
                break
        else:
            return None
        position += 2 + count + length
        if position > len(record) or key & 7 != _TEXT:
            return None
        numbers.append(key >> 3)
    return tuple(numbers) or _OF_EXAMPLE


def _why(record: bytes) -> str:
    if _fields(record) not in _OF_SEQUENCE:
        return "is no tf.Example"
    return (
        "is a SequenceExample with a list that has not one value at each step, which "
        f"`{STEP_LENGTHS}` does not name, or with a list and a feature of one name"
    )

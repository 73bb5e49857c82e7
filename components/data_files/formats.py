"""Identifies the format of a data file by its content.

Error messages name the format found, and the remedy. This module needs only the
standard library, unless files are in an object store.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.files.filesystems import is_remote
from strategos.components.slow_imports import pa

PARQUET = b"PAR1"
"""First bytes of a Parquet file."""

ORC = b"ORC"
"""First bytes of an ORC file."""

AVRO = b"Obj\x01"
"""First bytes of an Avro container file."""

_HEAD = 4096
_BUFFER = 1 << 20
_COMPRESSED = {  # by Arrow's name: the end of a file's name, and its first bytes
    "gzip": (".gz", b"\x1f\x8b"),
    "bz2": (".bz2", b"BZh"),
    "zstd": (".zst", b"\x28\xb5\x2f\xfd"),
}
_BINARY = {
    b"PK\x03\x04": ("a ZIP archive or an Excel workbook", "Unpack it, or export CSV"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "Export the sheet as CSV in UTF-8"),
    b"\xfd7zXZ": ("compressed by xz", "Unpack it"),
    b"SQLite format 3": ("an SQLite database", "Export the table as CSV"),
    AVRO: ("an Avro file", "Let its name end in .avro"),
    ORC: ("an ORC file", "Let its name end in .orc"),
    b"ARROW1": ("an Arrow file", "Convert it to Parquet"),
}
_TEXT = (  # in lower case, without white space before it
    (rb"<(!doctype|html|\?xml)", "a web page or XML", "Download or export it anew"),
    (rb"version https://git-lfs", "a pointer of Git LFS", "Run `git lfs pull`"),
    (
        rb'[\[{]\s*["{]',
        "JSON",
        "If each line is an object, let its name end in .jsonl",
    ),
)
_UNICODE = (  # UTF-32 first: its mark begins with the mark of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)


@contextlib.contextmanager
def unpacked_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, without its compression.

    Args:
      path: A path or URL; the end of its name says how it is compressed.

    Raises:
      OSError: It cannot be opened.
    """
    codec = compression(path)
    with storage.open_binary(path) as file:
        if codec is None:
            yield file
            return
        if codec == "gzip":
            with gzip.open(file) as unpacked:
                yield cast(IO[bytes], unpacked)
            return
        with pa.CompressedInputStream(file, codec) as stream:
            yield cast(IO[bytes], io.BufferedReader(stream, _BUFFER))


def compression(path: str) -> str | None:
    """Arrow's name of a file's compression, by the end of its name; None for none."""
    codecs_of = {end: codec for codec, (end, _) in _COMPRESSED.items()}
    return codecs_of.get(path[path.rfind(".") :])


def write_packed(path: str, content: bytes) -> None:
    """Writes a file with the compression that the end of its name says.

    Args:
      path: A local path.
      content: The content, without compression.
    """
    codec = compression(path)
    if codec is None:
        Path(path).write_bytes(content)
        return
    with pa.CompressedOutputStream(path, codec) as file:
        file.write(content)


def head(path: str) -> bytes:
    """The first 4 KiB of a file.

    Raises:
      UserError: The file cannot be opened.
    """
    try:
        with storage.open_binary(path) as file:
            return file.read(_HEAD)
    except OSError as error:
        raise UserError(unreadable(path, error)) from error


def identify(head: bytes) -> tuple[str, str] | None:
    """Identifies a binary format by its first bytes.

    Args:
      head: First bytes of the file, see the function `head`.

    Returns:
      Format and remedy, without the full stop, e.g. ("a Parquet file", "Let its name
      end in .parquet"); None if unknown, e.g. for text.
    """
    for codec, (end, begin) in _COMPRESSED.items():
        if head.startswith(begin):
            return f"compressed by {codec}", f"Let its name end in .csv{end}"
    if head.startswith(PARQUET):
        return "a Parquet file", "Let its name end in .parquet"
    for begin, kind in _BINARY.items():
        if head.startswith(begin):
            return kind
    return None


def suffix(head: bytes) -> str:
    """The suffix that the name of a file of rows should have, by its first bytes."""
    for begin, name in ((PARQUET, ".parquet"), (ORC, ".orc"), (AVRO, ".avro")):
        if head.startswith(begin):
            return name
    if re.match(rb"(\xef\xbb\xbf)?\s*\{", head):
        return ".jsonl"
    ends = (end for end, begin in _COMPRESSED.values() if head.startswith(begin))
    return ".csv" + next(ends, "")


def check_binary(path: str, begin: bytes, name: str) -> None:
    """Rejects a file that does not begin as files of a binary format do.

    Args:
      path: The file.
      begin: First bytes of such files.
      name: Name of the format.

    Raises:
      UserError: Names the format found and the remedy; or the file cannot be opened.
    """
    first_bytes = head(path)
    if not first_bytes.startswith(begin):
        raise UserError(
            f"{path}: cannot be read as {name}: {_other(first_bytes, name)}"
        )


def damaged(path: str, name: str, error: Exception | str) -> str:
    """The error message for a file that a library cannot read.

    Args:
      path: The file.
      name: Name of the format.
      error: The library's error.
    """
    if is_remote(path) and isinstance(error, OSError):
        return unreadable(path, error)
    return (
        f"{path}: cannot be read as {name}: {str(error).rstrip('.')}. The file may be "
        "incomplete: write or copy it anew."
    )


def unreadable(path: str, error: OSError) -> str:
    """The error message for a file that cannot be opened."""
    remedy = "Check the path."
    if isinstance(error, PermissionError):
        remedy = f"Allow it, for example: chmod a+r {path}."
    return f"{path}: cannot be opened: {error.strerror or error}. {remedy}"


def not_decoded(path: str, encoding: str = "utf-8") -> str:
    """The error message for a CSV file that does not have its encoding.

    Reads the file again to name the first line and byte that do not.
    """
    with unpacked_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                byte = line[error.start]
                place = f"line {number}: byte 0x{byte:02x}"
                break
        else:
            place = "some byte"
    return (
        f"{path}: is not {encoding.upper()} text ({place}). Set `data.csv.encoding`: "
        "that of Windows in Western Europe is `windows-1252`."
    )


def zero_byte(path: str, encoding: str = "utf-8") -> str:
    """The error message for a text file with a zero byte.

    Reads the file again to name the line.
    """
    with unpacked_file(path) as file:
        text = io.TextIOWrapper(file, encoding, "replace")
        line = next((n for n, each in enumerate(text, 1) if "\0" in each), 1)
    return _zero_bytes(path, line, "a zero byte")


def unpacked(path: str, head: bytes) -> bytes:
    """Decompresses the beginning of a file.

    Args:
      path: The file, for the message.
      head: First bytes of the file, compressed.

    Returns:
      The first bytes of the text, at most 4 KiB; b"" if the file is damaged.

    Raises:
      UserError: The file is not compressed as its name says.
    """
    codec = compression(path)
    if codec is None:
        return head
    if not head.startswith(_COMPRESSED[codec][1]):
        named = (f"not compressed by {codec}", "Let its name end in .csv")
        is_, remedy = identify(head) or named
        raise UserError(f"{path}: is {is_}. {remedy}.")
    try:
        with unpacked_file(path) as file:
            return file.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return b""  # reading the whole file reports the damage, with its place


def check_text(path: str, head: bytes, encoding: str = "utf-8") -> None:
    """Rejects a file that does not begin as text does.

    Args:
      path: The file, for the message.
      head: First bytes of the file, decompressed.
      encoding: The encoding of the text.

    Raises:
      UserError: The file has another format or encoding, or contains zero bytes.
    """
    format = identify(head) or _other_text(head)
    if format:
        raise UserError(f"{path}: is {format[0]}, not CSV. {format[1]}.")
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return
    wide = _wide_encoding(head)
    if wide:
        raise UserError(
            f"{path}: is {wide} text, not {encoding.upper()}. Set `data.csv: "
            f"{{encoding: {wide.lower()}}}`, or convert it."
        )
    if b"\0" in head:
        line = head[: head.index(b"\0")].count(b"\n") + 1
        what = "zero bytes alone" if not head.strip(b"\0") else "a zero byte"
        raise UserError(_zero_bytes(path, line, what))


def _other_text(head: bytes) -> tuple[str, str] | None:
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    matches = ((what, do) for sign, what, do in _TEXT if re.match(sign, begin))
    return next(matches, None)


def _other(head: bytes, name: str) -> str:
    """Describes a file that does not begin as its format does, with the remedy."""
    format = identify(head)
    if not format and head and b"\0" not in head and b"\n" in head:
        format = ("text", "If it is CSV, let its name end in .csv")
    if format:
        return f"it is {format[0]}. {format[1]}."
    if not head:
        return "it is empty. Remove the file, or put the data there."
    article = "an" if name[0] in "AO" else "a"
    return f"it does not begin as {article} {name} file does. Write or copy it again."


def _zero_bytes(path: str, line: int, what: str) -> str:
    return (
        f"{path}: line {line}: holds {what}, which text does not. The file is damaged "
        "or of another format: write or copy it again."
    )


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, if the text in `head` has that encoding."""
    for mark, name in _UNICODE:
        if head.startswith(mark):
            return name.removesuffix("LE").removesuffix("BE")
    start = head[:64]
    for zero, name in ((1, "UTF-16LE"), (0, "UTF-16BE")):
        if len(start) > 3 and not any(start[zero::2]) and all(start[1 - zero :: 2]):
            return name
    return None

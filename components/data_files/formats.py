"""Identifies the format of a data file by its content.

Error messages name the format found, and the remedy. This module needs only the
standard library, unless files are in an object store.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import re
import zlib
from collections.abc import Iterator
from typing import IO, cast

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.files.filesystems import is_remote

PARQUET = b"PAR1"
"""First bytes of a Parquet file."""

ORC = b"ORC"
"""First bytes of an ORC file."""

AVRO = b"Obj\x01"
"""First bytes of an Avro container file."""

_HEAD = 4096
_GZIP = b"\x1f\x8b"
_BINARY = {
    b"PK\x03\x04": ("a ZIP archive or an Excel workbook", "Unpack it, or export CSV"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "Export the sheet as CSV in UTF-8"),
    b"BZh": ("compressed by bzip2", "Unpack it"),
    b"\xfd7zXZ": ("compressed by xz", "Unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "Unpack it"),
    b"SQLite format 3": ("an SQLite database", "Export the table as CSV"),
    AVRO: ("an Avro file", "Let its name end in .avro"),
    ORC: ("an ORC file", "Let its name end in .orc"),
    b"ARROW1": ("an Arrow file", "Convert it to Parquet"),
}
_TEXT = (  # in lower case, without white space before it
    (rb"<(!doctype|html|\?xml)", "a web page or XML", "Download or export it anew"),
    (rb"version https://git-lfs", "a pointer of Git LFS", "Run `git lfs pull`"),
    (rb'[\[{]\s*["{]', "JSON", "Convert it: each line holds the fields of a row"),
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
      path: A path or URL; the name of a compressed file ends in `.gz`.

    Raises:
      OSError: It cannot be opened.
    """
    with storage.open_binary(path) as file:
        if not path.endswith(".gz"):
            yield file
            return
        with gzip.open(file) as unpacked:
            yield cast(IO[bytes], unpacked)


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
    if head.startswith(_GZIP):
        return "compressed by gzip", "Let its name end in .csv.gz"
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
    return ".csv.gz" if head.startswith(_GZIP) else ".csv"


def check_binary(path: str, begin: bytes, name: str) -> None:
    """Rejects a file that does not begin as files of a binary format do.

    Args:
      path: The file.
      begin: First bytes of such files.
      name: Name of the format.

    Raises:
      UserError: Names the format found and the remedy; or the file cannot be opened.
    """
    found = head(path)
    if not found.startswith(begin):
        raise UserError(f"{path}: cannot be read as {name}: {_other(found, name)}")


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


def not_utf8(path: str) -> str:
    """The error message for a CSV file (plain or gzip) that is not UTF-8.

    Reads the file again to name the first line and byte that are not.
    """
    with unpacked_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = line[error.start]
                place = f"line {number}: byte 0x{byte:02x}"
                break
        else:
            place = "some byte"
    return (
        f"{path}: is not UTF-8 text ({place}). Convert it from its encoding; if it is "
        f"that of Windows in Western Europe: iconv -f WINDOWS-1252 -t UTF-8."
    )


def zero_byte(path: str) -> str:
    """The error message for a CSV file (plain or gzip) with a zero byte.

    Reads the file again to name the line.
    """
    with unpacked_file(path) as file:
        line = next((n for n, each in enumerate(file, 1) if b"\0" in each), 1)
    return _zero_bytes(path, line, "a zero byte")


def unpacked(path: str, head: bytes) -> bytes:
    """Decompresses the beginning of a gzip file.

    Args:
      path: The file, for the message.
      head: First bytes of the file, compressed.

    Returns:
      The first bytes of the text, at most 4 KiB; b"" if the file is damaged.

    Raises:
      UserError: The file is not compressed by gzip.
    """
    if not head.startswith(_GZIP):
        named = ("not compressed by gzip", "Let its name end in .csv")
        is_, remedy = identify(head) or named
        raise UserError(f"{path}: is {is_}. {remedy}.")
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return b""  # reading the whole file reports the damage, with its place


def check_text(path: str, head: bytes) -> None:
    """Rejects a file that does not begin as UTF-8 text does.

    Args:
      path: The file, for the message.
      head: First bytes of the file, decompressed.

    Raises:
      UserError: The file has another format or encoding, or contains zero bytes.
    """
    format = identify(head) or _other_text(head)
    if format:
        raise UserError(f"{path}: is {format[0]}, not CSV. {format[1]}.")
    encoding = _wide_encoding(head)
    if encoding:
        raise UserError(
            f"{path}: is {encoding} text, not UTF-8. Convert it: iconv -f {encoding} "
            f"-t UTF-8."
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

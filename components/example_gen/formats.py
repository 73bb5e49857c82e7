"""What a data file really is, whatever its name says; the standard library suffices."""

from __future__ import annotations

import codecs
import gzip
import zlib

from strategos.components.errors import UserError

EXTENSIONS = (".csv", ".csv.gz", ".parquet")
"""Names of files that can be read end in one of these."""

_HEAD = 4096
_PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"
_BINARY = {
    b"PK\x03\x04": ("a ZIP archive or an Excel workbook", "Unpack it, or export CSV"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "Export the sheet as CSV in UTF-8"),
    b"BZh": ("compressed by bzip2", "Unpack it"),
    b"\xfd7zXZ": ("compressed by xz", "Unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "Unpack it"),
    b"SQLite format 3": ("an SQLite database", "Export the table as CSV"),
    b"Obj\x01": ("an Avro file", "Convert it to Parquet"),
    b"ORC": ("an ORC file", "Convert it to Parquet"),
    b"ARROW1": ("an Arrow file", "Convert it to Parquet"),
}
_UNICODE = (  # UTF-32 begins as UTF-16 does
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)


def check(path: str) -> None:
    """Rejects a file that cannot be opened or is not what its name says.

    Raises:
      UserError: Names the file, what it is, and what to do.
    """
    if not path.endswith(EXTENSIONS):
        raise UserError(
            f"{path}: not a format that is read here. Expected a name that ends in "
            f".csv, .csv.gz or .parquet; correct `data.examples`."
        )
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise UserError(unreadable(path, error)) from error
    if path.endswith(".parquet"):
        _check_parquet(path, head)
    elif not head:
        raise UserError(
            f"{path}: is empty. Expected CSV with a header; remove the file, or put "
            f"the data there."
        )
    elif path.endswith(".gz"):
        _check_gzip(path, head)
    else:
        _check_text(path, head)


def unreadable(path: str, error: OSError) -> str:
    """The message for a file that the system does not let us read."""
    remedy = "Check the path."
    if isinstance(error, PermissionError):
        remedy = f"Allow it, for example: chmod a+r {path}."
    return f"{path}: cannot be opened: {error.strerror or error}. {remedy}"


def not_utf8(path: str) -> str:
    """The message for a CSV file of which some byte is not UTF-8, with its line."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
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


def _check_parquet(path: str, head: bytes) -> None:
    if head.startswith(_PARQUET):
        return
    is_, remedy = _identify(head) or ("", "")
    if not is_ and head and b"\0" not in head and b"\n" in head:
        is_, remedy = "text", "If it is CSV, let its name end in .csv"
    raise UserError(
        f"{path}: cannot be read as Parquet: "
        + (f"it is {is_}. {remedy}." if is_ else _empty_or_damaged(head))
    )


def _empty_or_damaged(head: bytes) -> str:
    if not head:
        return "it is empty. Remove the file, or put the data there."
    return "it does not begin as a Parquet file does. Write or copy it again."


def _check_gzip(path: str, head: bytes) -> None:
    if not head.startswith(_GZIP):
        named = ("not compressed by gzip", "Let its name end in .csv")
        is_, remedy = _identify(head) or named
        raise UserError(f"{path}: is {is_}. {remedy}.")
    try:
        unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return  # a damaged file: reading it says where
    _check_text(path, unpacked)


def _check_text(path: str, head: bytes) -> None:
    found = _identify(head)
    if found:
        raise UserError(f"{path}: is {found[0]}, not CSV. {found[1]}.")
    encoding = _wide_encoding(head)
    if encoding:
        raise UserError(
            f"{path}: is {encoding} text, not UTF-8. Convert it: iconv -f {encoding} "
            f"-t UTF-8."
        )
    if b"\0" in head:
        line = head[: head.index(b"\0")].count(b"\n") + 1
        what = "zero bytes alone" if not head.strip(b"\0") else "a zero byte"
        raise UserError(
            f"{path}: line {line}: holds {what}, which text does not. The file is "
            f"damaged or of another format: write or copy it again."
        )


def _identify(head: bytes) -> tuple[str, str] | None:
    """What a file is by its first bytes, and what to do; None for text."""
    if head.startswith(_GZIP):
        return "compressed by gzip", "Let its name end in .csv.gz"
    if head.startswith(_PARQUET):
        return "a Parquet file", "Let its name end in .parquet"
    for begin, found in _BINARY.items():
        if head.startswith(begin):
            return found
    return None


def _wide_encoding(head: bytes) -> str | None:
    """The encoding of two or four bytes per character that `head` is in, if any."""
    for mark, name in _UNICODE:
        if head.startswith(mark):
            return name.removesuffix("LE").removesuffix("BE")
    start = head[:64]
    for zero, name in ((1, "UTF-16LE"), (0, "UTF-16BE")):
        if len(start) > 3 and not any(start[zero::2]) and all(start[1 - zero :: 2]):
            return name
    return None

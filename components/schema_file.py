"""Reads a schema from a text file; errors name the line."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.errors import UserError
from strategos.components.files import storage


def read_schema(path: str) -> schema_pb2.Schema:
    """Reads a TFMD schema in text form.

    Args:
      path: A local path, or `s3://…` or `gs://…`.

    Raises:
      UserError: The file cannot be read, is not a schema, or contains a feature twice.
    """
    try:
        schema = text_format.Parse(storage.read(path).decode(), schema_pb2.Schema())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            key="schema.file",
            expected="a text file (often `.pbtxt`) with a tensorflow_metadata Schema",
        ) from error
    except text_format.ParseError as error:
        raise UserError(_not_a_schema(path, error)) from error
    names = [feature.name for feature in schema.feature]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UserError(
            f"{path}: names twice: {', '.join(repeated)}. Keep one `feature` of each."
        )
    return schema


def _not_a_schema(path: str, error: text_format.ParseError) -> str:
    line, column = error.GetLine(), error.GetColumn()
    reason = str(error)
    if line is None:
        return f"{path}: not a schema: {reason}"
    reason = reason.removeprefix(f"{line}:{column} : ")
    return (
        f"{path}:{line}:{column}: not a schema: {reason} Expected the text form of a "
        f"tensorflow_metadata Schema; correct this line."
    )

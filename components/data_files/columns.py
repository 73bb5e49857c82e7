"""Checks the columns of the data files, and reads their kinds from a schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.data_files.inference import Profile
from strategos.components.data_files.sources import Source
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import Place, UserError
from strategos.components.schema_file import read_schema
from strategos.components.wording import abridged, choices, nearest, quoted

_NOT_IN_DATA = frozenset(
    {schema_pb2.PLANNED, schema_pb2.ALPHA, schema_pb2.DEPRECATED, schema_pb2.DISABLED}
)


def from_schema(files: Sequence[Source], schema_file: str) -> dict[str, Kind]:
    """The kind of each column, as a schema declares it.

    Args:
      files: Data files; their columns must match the schema.
      schema_file: Path of a TFMD schema in text form. Features in the lifecycle stages
        PLANNED, ALPHA, DEPRECATED and DISABLED are ignored.

    Raises:
      UserError: A file lacks a column that the schema requires, or has a column that
        the schema does not declare; or the schema has a type other than INT, FLOAT and
        BYTES.
    """
    schema = read_schema(schema_file)
    wanted = [f for f in schema.feature if f.lifecycle_stage not in _NOT_IN_DATA]
    kinds = {feature.name: _declared(feature, schema_file) for feature in wanted}
    required = [feature.name for feature in wanted if not _is_optional(feature)]
    for file in files:
        if file.open_ended:  # see `check_known`
            continue
        missing = [name for name in required if name not in file.names]
        if missing:
            raise UserError(
                f"no column {choices(quoted(missing))}, which {schema_file} declares",
                place=Place(file.path),
                expected=choices(file.names),
                remedy=f"{_nearest(missing[0], file.names)}Add the column, or take the "
                "feature out of the schema.",
            )
        extra = [name for name in file.names if name not in kinds]
        if extra and not file.ignores_extra:
            raise UserError(
                f"column {choices(quoted(extra))} is not in {schema_file}",
                place=Place(file.path),
                remedy=f"{_nearest(extra[0], kinds)}Add a `feature` to the schema, "
                "take the column out of the file, or set `data.extra_columns: ignore`.",
            )
    return kinds


def check_same(files: Sequence[Source]) -> None:
    """Rejects files with different sets of columns; their order may differ.

    Raises:
      UserError: A file lacks a column that another file has.
    """
    files = [f for f in files if not f.open_ended and not f.ignores_extra]
    have: dict[str, list[str]] = {}
    for file in files:
        for name in file.names:
            have.setdefault(name, []).append(file.path)
    for name, paths in have.items():
        if len(paths) == len(files):
            continue
        lacking = next(file for file in files if name not in file.names)
        raise UserError(
            f"no column `{name}`, which {abridged(paths, 3)} "
            f"{'has' if len(paths) == 1 else 'have'}",
            place=Place(lacking.path),
            remedy=_alike(name, lacking.names)
            + "All files need the same columns: add it here, or take it out there. Or "
            "name a schema, `schema.file`, that declares it as optional: "
            f'`feature {{ name: "{name}" type: FLOAT presence {{ }} }}` (or its type).',
        )


def inferred(
    files: Sequence[Source], profiles: Mapping[str, Profile]
) -> dict[str, Kind]:
    """The kind of each column, as its values have it.

    Args:
      files: The data files. If they ignore extra columns, only the columns that all
        files have are used.
      profiles: Profile by column.
    """
    declared = [set(file.names) for file in files if not file.open_ended]
    return {
        name: profile.kind
        for name, profile in profiles.items()
        if all(name in names for names in declared)
    }


def check_known(names: Collection[str], kinds: Collection[str], where: str) -> None:
    """Rejects a row with a column that nobody knows.

    Args:
      names: The columns of some rows.
      kinds: The columns that the schema declares, or that all files have.
      where: Place of these rows.

    Raises:
      UserError: A column is not among `kinds`.
    """
    extra = [name for name in names if name and name not in kinds]
    if extra:
        raise UserError(
            f"column {choices(quoted(extra))} is not in the schema",
            place=Place(where),
            remedy=f"{_nearest(extra[0], list(kinds))}Add a `feature` to the schema, "
            "or take the column out of the file.",
        )


def _declared(feature: schema_pb2.Feature, schema_file: str) -> Kind:
    name = schema_pb2.FeatureType.Name(feature.type)
    if name not in Kind.__members__:
        raise UserError(
            place=Place(f"{schema_file}: feature `{feature.name}`"),
            received=f"type {name}",
            expected="INT, FLOAT or BYTES",
        )
    return Kind[name]


def _is_optional(feature: schema_pb2.Feature) -> bool:
    """Whether the schema declares a presence of zero, so that no example needs it."""
    presence = feature.presence
    return feature.HasField("presence") and not (
        presence.min_count or presence.min_fraction
    )


def _alike(name: str, known: Sequence[str]) -> str:
    """A sentence naming a column that differs only in case and spaces, or ""."""
    folded = name.strip().casefold()
    near = next((each for each in known if each.strip().casefold() == folded), None)
    return f"It has {near!r}: case and spaces count. " if near else ""


def _nearest(name: str, known: Sequence[str] | Mapping[str, Kind]) -> str:
    near = nearest(name, known)
    return f"Nearest: `{near}`. " if near else ""

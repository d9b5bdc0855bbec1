"""Rows of `__schemas`: convert changes of a registry to table rows and back.

Each row holds all facts about its key: a version of a subject, or its settings. The latest row of a key counts, so a
compacted table keeps that one, and a table that has lost a row still describes everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kafkalike.model.names import SCHEMAS
from kafkalike.model.row_value import UNREADABLE as UNREADABLE_VALUE
from kafkalike.model.row_value import as_text, as_whole, damaged, flag, row_value, text
from kafkalike.model.schemas import schema as schemas
from kafkalike.model.schemas.refusals import MAX_ID

SCHEMA: Final = "schema"
CONFIG: Final = "config"
MODE: Final = "mode"

VERSIONS: Final = {SCHEMA: 1, CONFIG: 1, MODE: 1}
"""The newest format of each kind of row."""

LIVE: Final = "live"
SOFT: Final = "soft"
GONE: Final = "gone"
STANDINGS: Final = (LIVE, SOFT, GONE)
"""State of a version: visible, soft-deleted, permanently deleted. The last one keeps its number and its id."""

EVERYWHERE: Final = ""
"""In place of a subject: the settings for all subjects without their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRow:
    """One row of `__schemas`; `seq` orders the rows of the table."""

    seq: int
    kind: str
    """`schema`: the new state of a version of a subject. `config`, `mode`: the new setting of a subject."""
    subject: str = EVERYWHERE
    """Empty for a setting of all subjects."""
    version: int | None = None
    """Version number in a `schema` row."""
    schema_id: int | None = None
    """Schema id in a `schema` row; it belongs to this schema permanently."""
    value: str = ""
    """JSON; see the functions below."""
    time_ms: int


@dataclass(frozen=True, slots=True)
class Named:
    """A schema that has or had an id."""

    id: int
    mark: bytes
    """The schema's `fingerprint`."""
    guid: str
    schema: schemas.Schema | None
    """None if all versions with it are permanently deleted."""


@dataclass(frozen=True, slots=True)
class Stands:
    """The state of a version of a subject."""

    subject: str
    version: int
    named: Named
    """Its schema; without the text if the version is permanently deleted."""
    standing: str
    last_id: int = 0
    """The highest id assigned before, if the row's own id is lower; otherwise 0."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a subject or of all; None for a setting that is not set."""

    level: str | None = None
    normalize: bool | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """A change of the settings of a subject or of all."""

    subject: str
    config: Config | None
    """None if the settings were deleted."""


@dataclass(frozen=True, slots=True)
class ModeSet:
    """The mode of a subject, or of all."""

    subject: str
    mode: str | None
    """None if the mode was deleted."""


Said = Stands | Configured | ModeSet


def schema_value(named: Named, standing: str, last_id: int = 0) -> str:
    """Return the value of a `schema` row. For a permanently deleted version it contains only the fingerprint.

    Args:
        named: the schema.
        standing: state of the version.
        last_id: the highest id assigned before. It is recorded if it is above the row's own id, so that it is not
            assigned again if the row that assigned it is lost.
    """
    schema = named.schema
    if standing == GONE or schema is None:
        held: dict[str, Any] = {"fingerprint": named.mark.hex()}
    else:
        held = {"type": schema.type, "schema": schema.text}
        if schema.references:
            held["references"] = [[r.name, r.subject, r.version] for r in schema.references]
    if named.guid != schemas.guid_of(named.mark):
        held["guid"] = named.guid
    if last_id > named.id:
        held["last_id"] = last_id
    return schemas.json_text(held if standing == LIVE else {**held, "is": standing})


def config_value(config: Config) -> str:
    """Return the value of a `config` row; a row without a value deletes the settings."""
    held: dict[str, Any] = {} if config.level is None else {"compatibility": config.level}
    return schemas.json_text(held if config.normalize is None else {**held, "normalize": config.normalize})


def mode_value(mode: str) -> str:
    """Return the value of a `mode` row; a row without a value deletes the mode."""
    return schemas.json_text({"mode": mode})


def parse_row(row: SchemaRow) -> Said:
    """Parse a row.

    Raises:
        UnsupportedVersionError: a newer release wrote it.
        LogCorruptError: it is damaged.
    """
    try:
        value = row_value(SCHEMAS, row, VERSIONS)
        if row.kind == SCHEMA:
            return _stands(row, value)
        if row.kind == CONFIG:
            return Configured(row.subject, _config(value) if row.value else None)
        return ModeSet(row.subject, _one_of(text(value, "mode"), schemas.MODES) if row.value else None)
    except UNREADABLE_VALUE as cause:
        raise damaged(SCHEMAS, row, cause) from cause


def _stands(row: SchemaRow, value: dict[str, Any]) -> Stands:
    standing = _one_of(text(value, "is"), STANDINGS) if "is" in value else LIVE
    schema = None
    if standing == GONE:
        mark = bytes.fromhex(text(value, "fingerprint"))
        if len(mark) != 32:  # noqa: PLR2004 - bytes of a SHA-256
            raise ValueError(f"a fingerprint of {len(mark)} bytes")
    else:
        schema = schemas.Schema(
            _one_of(text(value, "type"), schemas.SCHEMA_TYPES),  # type: ignore[arg-type]
            text(value, "schema"),
            tuple(
                schemas.Reference(as_text(name, "name"), as_text(subject, "subject"), _number(version, "version"))
                for name, subject, version in value.get("references", ())
            ),
        )
        mark = schemas.fingerprint(schema)
    guid = text(value, "guid") if "guid" in value else schemas.guid_of(mark)
    named = Named(_number(row.schema_id, "schema_id"), mark, guid, schema)
    if not row.subject:
        raise ValueError("no subject")
    last_id = _number(value["last_id"], "last_id") if "last_id" in value else 0
    return Stands(row.subject, _number(row.version, "version"), named, standing, last_id)


def _config(value: dict[str, Any]) -> Config:
    level = _one_of(text(value, "compatibility"), schemas.LEVELS) if "compatibility" in value else None
    return Config(level, flag(value, "normalize") if "normalize" in value else None)


def _number(value: object, name: str) -> int:
    number = as_whole(value, name, at_least=1)
    if number > MAX_ID:
        # Otherwise every later id or version would have to be larger, and would be rejected.
        raise ValueError(f"{name} {number} is above {MAX_ID}")
    return number


def _one_of(value: str, known: Any) -> str:  # noqa: ANN401 - a container of texts
    if value not in known:
        raise ValueError(f"{value!r} is not in {', '.join(known)}")
    return value

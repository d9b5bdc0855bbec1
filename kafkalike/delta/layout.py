"""Layout: what the tables are called, which columns and properties they have; stated once, here.

Topic table: `<root>/<location>`, partitioned by `partition`. Control tables: `<root>/__cluster_metadata`,
`<root>/__consumer_offsets` and `<root>/__schemas`. Locks of a local root: `<root>/__locks/`. Heartbeats of group
members: `<root>/__leases/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model import group_state, metadata_rows, names

ROOT_FORMAT: Final = "kafkalike.root.format"
"""The property. A table that lacks it is of a root of format 1: releases before this one did not write it."""

ONLY_ROOT: Final = "1"
"""The format of a root that is the only one of its cluster. Earlier releases gave it to the roots of clusters that were
made with several."""

SEVERAL_ROOTS: Final = "2"
"""The format of a root that is one of several: a client that takes it for the only one would write past the others."""


def check_root_format(root: str, properties: Mapping[str, str], *, several: bool = False) -> None:
    """Refuse a root of a format that this release does not know, or that this client may not write.

    Args:
        root: for the error.
        properties: of the table `__cluster_metadata`.
        several: whether the client knows the root as one of several.

    Raises:
        UnsupportedVersionError: a newer release has made it so, or it has become one of several.
        LogCorruptError: it is no number of a format at all.
    """
    said = properties.get(ROOT_FORMAT, ONLY_ROOT)
    if said == SEVERAL_ROOTS:
        if not several:
            raise grown_error(root)
        return
    if said == ONLY_ROOT:
        return
    if not said.isascii() or not said.isdecimal() or str(int(said)) != said or said == "0":
        raise LogCorruptError(
            f"the root {root} is damaged: its format ({ROOT_FORMAT} in __cluster_metadata) is {said!r}, and formats "
            "are whole numbers from 1. No kafkalike writes that: restore __cluster_metadata from a backup, or set the "
            f"property to the number that this root had ({ONLY_ROOT}, or {SEVERAL_ROOTS} in a cluster of several roots)"
        )
    raise UnsupportedVersionError(
        f"the root {root} has format {said} ({ROOT_FORMAT} in __cluster_metadata), and this release knows formats "
        f"up to {SEVERAL_ROOTS}: a newer kafkalike has written it; upgrade this client"
    )


def grown_error(root: str) -> UnsupportedVersionError:
    """What to say to a client of a cluster of one root that has, or gets, several."""
    return UnsupportedVersionError(
        f"the cluster at {root} has several roots by now (`kafkalike brokers add`): begin this client anew; if it says "
        "this again, call `kafkalike brokers add` again, which was cut off"
    )


def taken_error(root: str) -> UnsupportedVersionError:
    """What to say to a client of one root of which others have made one of several, or are about to."""
    return UnsupportedVersionError(
        f"the root {root} is one of a cluster of several roots, which was made since this client was opened, or is "
        "being made: restart this client. If the error persists, name all roots of that cluster, as the file "
        "__brokers.claim in this root lists them: the client that was making it did not finish"
    )


CLUSTER_METADATA: Final = metadata_rows.TABLE
CONSUMER_OFFSETS: Final = group_state.TABLE
SCHEMAS: Final = names.TABLE

CONTROL_TABLES: Final = (CLUSTER_METADATA, CONSUMER_OFFSETS, SCHEMAS)
"""Those with rows that make up a state."""

LEASES: Final = "__leases"
LOCKS: Final = "__locks"
STAGING: Final = "__staging"
"""Where a Spark write puts its records down before they get their offsets."""

TRANSACTIONS: Final = "__transactions"
"""Where the records of transactions wait until these are committed, a folder for each."""

MIRRORS: Final = "__mirrors"
"""What mirrors have decided to bring, until all topics have it; and how far they have seen their sources."""

DELETED: Final = "__deleted"
"""Where the tables of deleted topics go while their files are being removed."""

DAMAGED: Final = "__damaged"
"""Where `kafkalike verify --repair` keeps the damaged files that it takes out of tables."""


BROKERS: Final = "__brokers"
"""A file of each root of a cluster that has several: which cluster, which broker, and where the others are."""

CLAIM: Final = f"{BROKERS}.claim"
"""A file of each root of which a cluster of several is being made, or was: which one."""


_LIFE: Final = re.compile(r"~\d{1,19}$")
"""What follows a table's location in the folder of a replica with another life."""


def location_in(folder: str) -> str:
    """Where the table lies of whose replica a folder would be, by its name."""
    return _LIFE.sub("", folder)


def is_folder_of(folder: str, location: str) -> bool:
    """Whether a folder of a root is where a table lies, or a replica of it, of whatever life.

    Args:
        folder: its name.
        location: the table's.
    """
    return folder == location or (
        folder.startswith(location) and _LIFE.fullmatch(folder.removeprefix(location)) is not None
    )


def _field(name: str, kind: object, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


_HEADER: Final = {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]}

TOPIC_SCHEMA: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [
        _field("partition", "integer", nullable=False),
        _field("offset", "long", nullable=False),
        _field("timestamp", "timestamp", nullable=False),
        _field("timestampType", "integer", nullable=False),
        _field("key", "binary"),
        _field("value", "binary"),
        _field("headers", {"type": "array", "elementType": _HEADER, "containsNull": True}),
    ],
}
"""Delta schema of a topic table, as its log has it."""

_TYPES: Final = {
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.string(): "string",
    pa.timestamp("us", "UTC"): "timestamp",
}


def delta_schema(schema: pa.Schema) -> dict[str, Any]:
    """Delta schema of a control table, from its Arrow schema."""
    return {"type": "struct", "fields": [_field(f.name, _TYPES[f.type], nullable=f.nullable) for f in schema]}


TOPIC_TABLE_PROPERTIES: Final = {
    # A file's offset and time range are its index; statistics of keys and values would only cost.
    "delta.dataSkippingStatsColumns": "offset,timestamp",
    # Every checkpoint writes the whole state; 10, Delta's default, doubled the mean cost of an append.
    "delta.checkpointInterval": "100",
    # Delta lists the whole log at each commit, so old entries cost every writer.
    "delta.logRetentionDuration": "interval 1 days",
}

CONTROL_TABLE_PROPERTIES: Final = {
    "delta.checkpointInterval": "100",
    # Each commit of an offset is a version and a file: what a day would keep of a hundred commits a second makes each
    # checkpoint, which names all files that are gone, and each look into the log's folder, longer and longer.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
}

METADATA_TABLE_PROPERTIES: Final = {**CONTROL_TABLE_PROPERTIES, ROOT_FORMAT: ONLY_ROOT}
"""Of `__cluster_metadata`, which says for the whole root what format it has."""

METADATA_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("change", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)
"""Columns of `__cluster_metadata`; see `MetadataRow`."""

OFFSETS_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("member_id", pa.string(), nullable=False),
        pa.field("client_id", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)
"""Columns of `__consumer_offsets`; see `GroupRow`."""

SCHEMAS_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("version", pa.int32()),
        pa.field("schema_id", pa.int32()),
        pa.field("value", pa.string(), nullable=False),
    ]
)
"""Columns of `__schemas`; see `SchemaRow`."""

CONTROL_SCHEMAS: Final = {
    CLUSTER_METADATA: METADATA_SCHEMA,
    CONSUMER_OFFSETS: OFFSETS_SCHEMA,
    SCHEMAS: SCHEMAS_SCHEMA,
}
"""Columns of each control table."""

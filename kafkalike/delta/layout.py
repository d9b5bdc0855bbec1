"""Layout: names, columns and properties of the tables.

Topic table: `<root>/<location>`, partitioned by `partition`. Control tables: `<root>/__cluster_metadata`,
`<root>/__consumer_offsets` and `<root>/__schemas`. Locks of a local root: `<root>/__locks/`. Heartbeats of group
members: `<root>/__leases/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from kafkalike.delta.log_files import CHECKPOINT_INTERVAL
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model import names

ROOT_FORMAT: Final = "kafkalike.root.format"
"""Property of `__cluster_metadata` with the root's format. Tables of releases without it have format 1."""

ONLY_ROOT: Final = "1"
"""Format of the only root of a cluster. Earlier releases also gave it to the roots of clusters that were created with
several."""

SEVERAL_ROOTS: Final = "2"
"""Format of a root in a cluster of several. A client for single roots refuses it, because it would bypass the other
roots."""


def check_root_format(root: str, properties: Mapping[str, str], *, several: bool = False) -> None:
    """Raise if this release does not know the root's format, or this client may not write to it.

    Args:
        root: for the error.
        properties: of the table `__cluster_metadata`.
        several: True if the client opened the root in a cluster of several.

    Raises:
        UnsupportedVersionError: a newer release wrote the root, or its cluster got several roots.
        LogCorruptError: the format is not a whole number from 1.
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
            "are whole numbers from 1. No release of kafkalike writes that: restore __cluster_metadata from a backup, "
            f"or set the property to the former number ({ONLY_ROOT}, or {SEVERAL_ROOTS} in a cluster of several roots)"
        )
    raise UnsupportedVersionError(
        f"the root {root} has format {said} ({ROOT_FORMAT} in __cluster_metadata), and this release knows formats "
        f"up to {SEVERAL_ROOTS}: a newer kafkalike has written it; upgrade this client"
    )


def grown_error(root: str) -> UnsupportedVersionError:
    """Return the error of a client whose cluster of one root got several."""
    return UnsupportedVersionError(
        f"the cluster at {root} has several roots (`kafkalike brokers add`): restart this client. If the error "
        "persists, run `kafkalike brokers add` again: its previous run did not finish"
    )


def taken_error(root: str) -> UnsupportedVersionError:
    """Return the error of a client whose root was or is being made part of a cluster of several."""
    return UnsupportedVersionError(
        f"the root {root} is part of a cluster of several roots, which was created after this client was opened, or "
        "is being created: restart this client. If the error persists, name all roots of that cluster, as the file "
        "__brokers.claim in this root lists them: the client that was creating it did not finish"
    )


CLUSTER_METADATA: Final = names.CLUSTER_METADATA
CONSUMER_OFFSETS: Final = names.CONSUMER_OFFSETS
SCHEMAS: Final = names.SCHEMAS

CONTROL_TABLES: Final = (CLUSTER_METADATA, CONSUMER_OFFSETS, SCHEMAS)
"""Tables whose rows make up a state."""

LEASES: Final = "__leases"
LOCKS: Final = "__locks"
STAGING: Final = "__staging"
"""Folder in which a Spark write stages its records until they get their offsets."""

TRANSACTIONS: Final = "__transactions"
"""Folder in which the records of open transactions wait, one folder per transaction."""

TABLES: Final = "__tables"
"""Folder in which rows for other Delta tables wait until their transaction is decided and the tables have them."""

MIRRORS: Final = "__mirrors"
"""Folder of the mirrors: decided synchronizations until all topics have them, and the source versions seen so far."""

DELETED: Final = "__deleted"
"""Folder of the tables of deleted topics while their files are removed."""

DAMAGED: Final = "__damaged"
"""Folder in which `kafkalike verify --repair` keeps the damaged files that it takes out of tables."""


BROKERS: Final = "__brokers"
"""File of each root of a cluster with several: the cluster's id, the broker, and the addresses of the other roots."""

CLAIM: Final = f"{BROKERS}.claim"
"""File of each root that was or is being made part of a cluster of several: names that cluster."""


_LIFE: Final = re.compile(r"~\d{1,19}$")
"""Suffix of the folder of a replica with a later life, after the table's location."""


def location_in(folder: str) -> str:
    """Return the location of the table whose replica a folder is, judged by its name."""
    return _LIFE.sub("", folder)


def is_folder_of(folder: str, location: str) -> bool:
    """Return True if a folder of a root is that of a table or of a replica of it, in any life.

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
    """Return the Delta schema of a control table, from its Arrow schema."""
    return {"type": "struct", "fields": [_field(f.name, _TYPES[f.type], nullable=f.nullable) for f in schema]}


TOPIC_TABLE_PROPERTIES: Final = {
    # Statistics of offset and timestamp are the index; statistics of keys and values would only cost.
    "delta.dataSkippingStatsColumns": "offset,timestamp",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # Delta lists the whole log at each commit, so old entries cost every writer.
    "delta.logRetentionDuration": "interval 1 days",
}

CONTROL_TABLE_PROPERTIES: Final = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # Each commit of an offset is a version and a file. With a day's retention and a hundred commits a second, each
    # checkpoint, which names all removed files, and each list of the log would grow by millions of entries.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
}

METADATA_TABLE_PROPERTIES: Final = {**CONTROL_TABLE_PROPERTIES, ROOT_FORMAT: ONLY_ROOT}
"""Properties of `__cluster_metadata`, which holds the format of the whole root."""

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

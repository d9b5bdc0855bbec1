"""API versions: the requests that the gateway answers, their versions, and the codec of each."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from kafkalike.gateway.message_codec import Read, Write, reader_of, writer_of

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_GROUP_DESCRIBE: Final = 77
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
ALTER_SHARE_GROUP_OFFSETS: Final = 91
DELETE_SHARE_GROUP_OFFSETS: Final = 92

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    PRODUCE: (3, 13),
    FETCH: (4, 18),
    LIST_OFFSETS: (1, 11),
    METADATA: (1, 13),
    OFFSET_COMMIT: (2, 10),
    OFFSET_FETCH: (1, 10),
    FIND_COORDINATOR: (0, 6),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    # Version 0 is followed by messages outside of the protocol.
    SASL_HANDSHAKE: (1, 1),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    DELETE_TOPICS: (1, 6),
    DELETE_RECORDS: (0, 2),
    INIT_PRODUCER_ID: (0, 5),
    OFFSET_FOR_LEADER_EPOCH: (2, 4),
    # From version 4 on only brokers send it.
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 5),
    TXN_OFFSET_COMMIT: (0, 5),
    DESCRIBE_ACLS: (1, 3),
    DESCRIBE_CONFIGS: (1, 4),
    ALTER_CONFIGS: (0, 2),
    DESCRIBE_LOG_DIRS: (1, 4),
    SASL_AUTHENTICATE: (0, 2),
    CREATE_PARTITIONS: (0, 3),
    DELETE_GROUPS: (0, 2),
    ELECT_LEADERS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    LIST_PARTITION_REASSIGNMENTS: (0, 0),
    OFFSET_DELETE: (0, 0),
    DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    DESCRIBE_CLUSTER: (0, 2),
    DESCRIBE_PRODUCERS: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
    CONSUMER_GROUP_HEARTBEAT: (0, 1),
    CONSUMER_GROUP_DESCRIBE: (0, 1),
    LIST_CONFIG_RESOURCES: (0, 1),
    DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    SHARE_GROUP_HEARTBEAT: (1, 1),
    SHARE_GROUP_DESCRIBE: (1, 1),
    SHARE_FETCH: (1, 2),
    SHARE_ACKNOWLEDGE: (1, 2),
    DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}
"""Lowest and highest version of each request that the gateway can read. It offers the keys with a handler."""

Answer = Mapping[str, Any]
"""An answer by field, as `message_codec.writer_of` takes it."""


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How one version of a request is read, and its answer written."""

    read_header: Read
    read_body: Read
    write_header: Write
    write_body: Write
    has_error: bool
    """True if the answer as a whole can be an error."""

    @classmethod
    def of(cls, key: int, version: int) -> MessageFormat:
        """Return the format of a request that `VERSIONS` lists."""
        return _format(key, version)

    def request(self, frame: memoryview) -> tuple[Any, Any]:
        """Parse a frame into its header and its body. Bytes behind them are ignored: librdkafka sends some.

        Raises:
            MalformedRequestError: the frame is not such a request.
        """
        header, at = self.read_header(frame, 0)
        return header, self.read_body(frame, at)[0]

    def answer(self, correlation_id: int, values: Answer) -> bytes:
        """Return the frame of an answer, with its length."""
        out = bytearray(4)
        self.write_header(out, {"correlation_id": correlation_id})
        self.write_body(out, values)
        out[:4] = struct.pack(">i", len(out) - 4)
        return bytes(out)


@cache
def _format(key: int, version: int) -> MessageFormat:
    request: Any = load_request_schema(key, version)
    response: Any = load_response_schema(key, version)
    return MessageFormat(
        reader_of(request.__header_schema__),
        reader_of(request),
        writer_of(response.__header_schema__),
        writer_of(response),
        any(field.name == "error_code" for field in fields(response)),
    )

"""Well-known messages: names of Google's own messages that mean more than their fields say."""

from __future__ import annotations

from typing import Final

WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
JSON_MESSAGES: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
TIMES: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})

"""Protobuf reader: messages of any version of a file in, the columns of one version out."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.arrow.protobuf_columns import chosen_message, message_columns
from kafkalike.schemas.arrow.reading import Reading, check_type
from kafkalike.schemas.arrow.values import one_by_one
from kafkalike.schemas.proto.files import build_file, message_at
from kafkalike.schemas.source import SchemaSource
from kafkalike.schemas.wire import split_indexes


class ProtobufReader:
    """See `reader_of`. Fields have their numbers in the value: the writer's schema only says which message it is."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int, message: str | None) -> None:
        self._source = source
        self._message = chosen_message(build_file(schema, source.referenced(schema)), message)
        self._class = GetMessageClass(self._message)
        self._top = message_columns(self._message, depth)
        self.columns = pa.schema(list(self._top.kind))
        self.is_record = True

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        check_type(schema, "PROTOBUF")
        file = build_file(schema, self._source.referenced(schema))
        names: dict[tuple[int, ...], str] = {}

        def parse_one(value: bytes) -> Message:
            indexes, start = split_indexes(value)
            name = names.get(indexes)
            if name is None:
                name = names[indexes] = message_at(file, indexes).full_name
            if name != self._message.full_name:
                raise ValueError(f"the value is a message {name}, not {self._message.full_name}")
            try:
                return self._class.FromString(value[start:])
            except DecodeError as cause:
                raise ValueError(f"the value is no message {name}: {cause}") from cause

        return partial(one_by_one, self._top, parse_one)

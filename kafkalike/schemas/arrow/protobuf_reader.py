"""Protobuf reader: messages of any version of a file in, the columns of one version out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.protobuf_columns import chosen_message, message_columns
from kafkalike.schemas.arrow.reading import Reading, check_type
from kafkalike.schemas.arrow.values import one_by_one
from kafkalike.schemas.proto.changes import check_of
from kafkalike.schemas.proto.files import build_file, message_at
from kafkalike.schemas.source import SchemaSource
from kafkalike.schemas.wire import split_indexes

Parse = Callable[[bytes], Message]


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
        known: dict[tuple[int, ...], tuple[str, Parse]] = {}

        def parse_one(value: bytes) -> Message:
            indexes, start = split_indexes(value)
            found = known.get(indexes)
            if found is None:
                writer = message_at(file, indexes)
                found = known[indexes] = writer.full_name, self._parse(writer)
            name, parse = found
            if name != self._message.full_name:
                raise ValueError(f"the value is a message {name}, not {self._message.full_name}")
            try:
                return parse(value[start:])
            except DecodeError as cause:
                raise ValueError(f"the value is no message {name}: {cause}") from cause

        return partial(one_by_one, self._top, parse_one)

    def _parse(self, writer: Descriptor) -> Parse:
        """What parses a message: by both schemas where a field has changed its type, which have to agree then."""
        read = self._class.FromString
        check = check_of(writer, self._message) if writer.full_name == self._message.full_name else None
        if check is None:
            return read
        written = GetMessageClass(writer).FromString

        def parse(value: bytes) -> Message:
            found = read(value)
            check(written(value), found)
            return found

        return parse

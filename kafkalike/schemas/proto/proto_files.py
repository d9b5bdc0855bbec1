"""Protobuf schemas as files: descriptors with resolved names, built from text or base64 and what it imports."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.limits import check_length
from kafkalike.schemas.proto.parser import parse_proto
from kafkalike.schemas.proto.printer import print_proto

MAIN: Final = "default"
"""What a schema's own file is called."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*=*\s*\Z")
_WITHOUT_REFERENCES: Final = ("google/protobuf/", "google/type/", "confluent/")
_CONFLUENT: Final[Mapping[str, str]] = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
"""Files that Confluent's tools import without a reference."""


def is_builtin(name: str) -> bool:
    """Whether an import needs no reference: Google's and Confluent's own files."""
    return name.startswith(_WITHOUT_REFERENCES)


def load_proto(text: str, name: str = MAIN) -> FileDescriptorProto:
    """The descriptor of a schema's text.

    Args:
        text: a `.proto` file, as Java's clients register it, or a serialised descriptor in base64, as Confluent's
            Python client does.
        name: what imports call it.

    Raises:
        InvalidSchemaError: it is neither.
    """
    check_length(text)
    if not _is_base64(text):
        return parse_proto(text, name)
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError) as cause:
        raise InvalidSchemaError(f"the schema is neither a .proto file nor a descriptor in base64: {cause}") from cause
    file.name = name
    return file


def build_file(schema: Schema, referenced: Mapping[str, Schema]) -> FileDescriptor:
    """A schema's file, with what it imports, in a pool of its own.

    Args:
        schema: a Protobuf schema.
        referenced: what it imports, by the names of the imports (`SchemaSource.referenced`).

    Raises:
        InvalidSchemaError: a file cannot be read, is missing, or does not fit the others.
    """
    if schema.type != "PROTOBUF":
        raise InvalidSchemaError(f"the schema is of type {schema.type}, not PROTOBUF")
    files = _Files(referenced)
    files.add(load_proto(schema.text))
    try:
        return files.pool.FindFileByName(MAIN)
    except KeyError as cause:  # the pool does not say why it left a file out
        raise InvalidSchemaError("the Protobuf schema cannot be built") from cause


def resolved(file: FileDescriptor) -> FileDescriptorProto:
    """The descriptor of a file of a pool: full names of types, and what each of them is."""
    made = FileDescriptorProto()
    file.CopyToProto(made)
    return made


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """The message at a place of a file: its number among the file's, then among those inside it, and so on.

    Raises:
        SerializationError: the file has no message there.
    """
    messages, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SerializationError(f"the schema has no message at the place {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise SerializationError("the record names no message")
    return found


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """The place of a message in its file; the other way round than `message_at`."""
    outer = message.containing_type
    siblings = list(message.file.message_types_by_name.values()) if outer is None else list(outer.nested_types)
    place = [sibling.full_name for sibling in siblings].index(message.full_name)
    return (place,) if outer is None else (*indexes_of(outer), place)


def as_text(text: str) -> str:
    """A schema's text as a `.proto` file: a descriptor in base64 is written as one, a file stays as it is.

    Raises:
        InvalidSchemaError: it is neither.
    """
    return print_proto(load_proto(text)) if _is_base64(text) else text


def serialized(schema: Schema, referenced: Mapping[str, Schema]) -> str:
    """A schema as a descriptor in base64, as Confluent's Python client wants it."""
    return base64.b64encode(resolved(build_file(schema, referenced)).SerializeToString()).decode()


def _is_base64(text: str) -> bool:
    return bool(text.strip()) and _BASE64.match(text) is not None


class _Files:
    def __init__(self, referenced: Mapping[str, Schema]) -> None:
        self.pool = DescriptorPool()
        self._referenced = referenced
        self._added: dict[str, bool] = {}

    def add(self, file: FileDescriptorProto) -> None:
        """Put a file into the pool, after what it imports."""
        self._added[file.name] = False
        for name in file.dependency:
            done = self._added.get(name)
            if done is None:
                self.add(self._imported(name))
            elif not done:
                raise InvalidSchemaError(f"the import of {name!r} leads back to itself")
        try:
            self.pool.Add(file)
        except (TypeError, ValueError) as cause:
            what = "" if file.name == MAIN else f" {file.name!r}"
            raise InvalidSchemaError(f"the Protobuf schema{what} cannot be built: {cause}") from cause
        self._added[file.name] = True

    def _imported(self, name: str) -> FileDescriptorProto:
        used = self._referenced.get(name)
        if used is not None:
            if used.type != "PROTOBUF":
                raise InvalidSchemaError(f"the reference {name!r} is to a schema of type {used.type}")
            return load_proto(used.text, name)
        text = _CONFLUENT.get(name)
        if text is not None:
            return parse_proto(text, name)
        if name.startswith("google/") and re.fullmatch(r"google/(?:protobuf|type)/[a-z_]+\.proto", name):
            try:
                module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            except ImportError as cause:
                raise InvalidSchemaError(f"the import {name!r} is not installed and has no reference") from cause
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        raise InvalidSchemaError(f"the import {name!r} has no reference")


WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
JSON_MESSAGES: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
TIMES: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})

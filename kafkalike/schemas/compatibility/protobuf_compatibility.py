"""Compatibility of Protobuf schemas by the rules of Confluent's registry.

They are Google's rules for updating a message, as far as a registry can check them: numbers and types of fields count,
names of fields, enums and services do not. Removing a message is an incompatibility, because records may name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor, OneofDescriptor

from kafkalike.model.schemas.schema import Resolve, Schema
from kafkalike.schemas.limits import no_deeper_than_the_stack
from kafkalike.schemas.proto.parser import TYPE_NAMES
from kafkalike.schemas.proto.proto_files import build_file

_GROUPS: Final = (
    ("int32", "uint32", "int64", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
)
_GROUP_OF: Final[Mapping[str, int]] = {name: number for number, names in enumerate(_GROUPS) for name in names}
"""Groups of types with the same encoding."""


def problems(new: Schema, old: Schema, resolve: Resolve) -> list[str]:
    """Return the reasons why a reader with schema `new` cannot read records written with schema `old`.

    Returns:
        One sentence per incompatibility, starting with the message or the field; empty if compatible.

    Raises:
        InvalidSchemaError: a schema is not a valid Protobuf schema.
    """
    with no_deeper_than_the_stack():
        reader, writer = build_file(new, resolve(new)), build_file(old, resolve(old))
        found = []
        if reader.package != writer.package:
            found.append(f"the package {writer.package!r} became {reader.package!r}")
        return found + _Comparison().of_files(reader, writer)


class _Comparison:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def of_files(self, reader: FileDescriptor, writer: FileDescriptor) -> list[str]:
        read = {_local(message): message for message in _messages(reader.message_types_by_name.values())}
        found = []
        for written in _messages(writer.message_types_by_name.values()):
            match = read.get(_local(written))
            if match is None:
                found.append(f"{written.full_name}: the message is gone")
            else:
                found += self._of_messages(match, written)
        return found

    def _of_messages(self, reader: Descriptor, writer: Descriptor) -> list[str]:
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return []
        self._seen.add(pair)
        found = []
        for number, written in writer.fields_by_number.items():
            field = reader.fields_by_number.get(number)
            if field is not None:
                found += self._of_fields(field, written)
            elif written.is_required:
                found.append(f"{reader.full_name}: the required field {written.name} (number {number}) is gone")
        found += [
            f"{field.full_name}: the required field (number {field.number}) was not written"
            for field in reader.fields
            if field.is_required and field.number not in writer.fields_by_number
        ]
        return found + _of_oneofs(reader, writer)

    def _of_fields(self, reader: FieldDescriptor, writer: FieldDescriptor) -> list[str]:
        where = f"{reader.full_name} (number {reader.number})"
        if _is_map(reader) and _is_map(writer):
            pairs = zip(_entry(reader), _entry(writer), strict=True)
            return [problem for pair in pairs for problem in self._of_types(*pair, f"{where}, its {pair[0].name}")]
        found = self._of_types(reader, writer, where)
        if reader.is_required and not writer.is_required:
            found.append(f"{where}: it is required, and may not have been written")
        if reader.is_repeated != writer.is_repeated and _is_number(reader):
            found.append(f"{where}: a {_label(writer)} number became {_label(reader)}")
        return found

    def _of_types(self, reader: FieldDescriptor, writer: FieldDescriptor, where: str) -> list[str]:
        read, wrote = _type_name(reader), _type_name(writer)
        if reader.message_type is not None and writer.message_type is not None and reader.type == writer.type:
            same = (
                _local(reader.message_type) == _local(writer.message_type)
                and not _is_map(reader)
                and not _is_map(writer)
            )
            if not same:
                return [f"{where}: the message {wrote} became {read}"]
            return self._of_messages(reader.message_type, writer.message_type)
        if reader.enum_type is not None and writer.enum_type is not None:
            same = _local(reader.enum_type) == _local(writer.enum_type)
            return [] if same else [f"{where}: the enum {wrote} became {read}"]
        group = _GROUP_OF.get(TYPE_NAMES[reader.type])
        if reader.type == writer.type or (group is not None and group == _GROUP_OF.get(TYPE_NAMES[writer.type])):
            return []
        return [f"{where}: the type {wrote} became {read}, which has another form"]


def _of_oneofs(reader: Descriptor, writer: Descriptor) -> list[str]:
    found = []
    written = {oneof.name: oneof for oneof in _oneofs(writer)}
    for oneof in _oneofs(reader):
        numbers = {field.number for field in oneof.fields}
        before = written.get(oneof.name)
        if before is None:
            moved = [field.name for field in oneof.fields if field.number in writer.fields_by_number]
            if len(moved) > 1:
                found.append(f"{oneof.full_name}: {', '.join(moved)} moved into a new oneof, where only one can be set")
            continue
        known = {field.number for field in before.fields}
        found += [
            f"{oneof.full_name}: the field {field.name} (number {field.number}) left the oneof"
            for field in before.fields
            if field.number not in numbers
        ]
        found += [
            f"{oneof.full_name}: the field {field.name} (number {field.number}) moved into the oneof"
            for field in oneof.fields
            if field.number not in known and field.number in writer.fields_by_number
        ]
    return found


def _oneofs(message: Descriptor) -> list[OneofDescriptor]:
    """Return the explicit oneofs, without those generated for `optional` fields of proto3."""
    return [
        oneof
        for oneof in message.oneofs
        if not (len(oneof.fields) == 1 and oneof.name.lstrip("X") == f"_{oneof.fields[0].name}")
    ]


def _messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and their nested messages, without the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _messages(message.nested_types)


def _local(named: Descriptor | EnumDescriptor) -> str:
    """Return the name of a type inside its package."""
    package = named.file.package
    name: str = named.full_name
    return name[len(package) + 1 :] if package else name


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_number(field: FieldDescriptor) -> bool:
    return TYPE_NAMES[field.type] not in {"string", "bytes", "message", "group"}


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return the key and value fields of a map."""
    assert field.message_type is not None
    parts = field.message_type.fields_by_name
    return parts["key"], parts["value"]


def _label(field: FieldDescriptor) -> str:
    return "repeated" if field.is_repeated else "single"


def _type_name(field: FieldDescriptor) -> str:
    if _is_map(field):
        key, value = _entry(field)
        return f"map<{_type_name(key)}, {_type_name(value)}>"
    named = field.message_type or field.enum_type
    return named.full_name if named is not None else TYPE_NAMES[field.type]

"""Protobuf schemas as files: descriptors with resolved names, from text or Base64, and their canonical text."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.limits import check_length
from kafkalike.schemas.proto.parser import LABELS, MAX_NUMBER, SCALARS, parse_proto

MAIN: Final = "default"
"""Name of the schema's own file."""
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
    """Return True if an import needs no reference, as Google's and Confluent's own files."""
    return name.startswith(_WITHOUT_REFERENCES)


def load_proto(text: str, name: str = MAIN) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a schema.

    Args:
        text: a `.proto` file, as registered by Java clients, or a serialized descriptor in Base64, as registered by
            Confluent's Python client.
        name: the file's name in imports.

    Raises:
        InvalidSchemaError: the text is neither.
    """
    check_length(text)
    if not _is_base64(text):
        return parse_proto(text, name)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError) as cause:
        raise InvalidSchemaError(f"the schema is neither a .proto file nor a Base64 descriptor: {cause}") from cause
    file.name = name
    return file


def build_file(schema: Schema, referenced: Mapping[str, Schema]) -> FileDescriptor:
    """Build a schema's file and its imports in a pool of their own.

    Args:
        schema: a Protobuf schema.
        referenced: the imported schemas, by import name (`SchemaSource.referenced`).

    Raises:
        InvalidSchemaError: a file is invalid, missing, or conflicts with another one.
    """
    if schema.type != "PROTOBUF":
        raise InvalidSchemaError(f"the schema is of type {schema.type}, not PROTOBUF")
    files = _Files(referenced)
    files.add(load_proto(schema.text))
    try:
        return files.pool.FindFileByName(MAIN)
    except KeyError as cause:  # the pool does not report why it dropped a file
        raise InvalidSchemaError("the Protobuf schema cannot be built") from cause


def resolved(file: FileDescriptor) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file in a pool, with full names and kinds of types."""
    made = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(made)
    return made


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message at indexes: the index of a top-level message, then of a message nested in it, and so on.

    Raises:
        SerializationError: the file has no such message.
    """
    messages, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SerializationError(f"the schema has no message at the place {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise SerializationError("the record has no message indexes")
    return found


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Return the indexes of a message in its file, the inverse of `message_at`."""
    outer = message.containing_type
    siblings = list(message.file.message_types_by_name.values()) if outer is None else list(outer.nested_types)
    place = [sibling.full_name for sibling in siblings].index(message.full_name)
    return (place,) if outer is None else (*indexes_of(outer), place)


def as_text(text: str) -> str:
    """Return a schema as a `.proto` file; a Base64 descriptor is printed, and a file is returned unchanged.

    Raises:
        InvalidSchemaError: the text is neither.
    """
    return print_proto(load_proto(text)) if _is_base64(text) else text


def serialized(schema: Schema, referenced: Mapping[str, Schema]) -> str:
    """Return a schema as a Base64 descriptor, the format of Confluent's Python client."""
    return base64.b64encode(resolved(build_file(schema, referenced)).SerializeToString()).decode()


def _is_base64(text: str) -> bool:
    return bool(text.strip()) and _BASE64.match(text) is not None


class _Files:
    def __init__(self, referenced: Mapping[str, Schema]) -> None:
        self.pool = DescriptorPool()
        self._referenced = referenced
        self._added: dict[str, bool] = {}

    def add(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        """Add a file to the pool, after its imports."""
        self._added[file.name] = False
        for name in file.dependency:
            done = self._added.get(name)
            if done is None:
                self.add(self._imported(name))
            elif not done:
                raise InvalidSchemaError(f"the import of {name!r} is circular")
        try:
            self.pool.Add(file)
        except (TypeError, ValueError) as cause:
            what = "" if file.name == MAIN else f" {file.name!r}"
            raise InvalidSchemaError(f"the Protobuf schema{what} cannot be built: {cause}") from cause
        self._added[file.name] = True

    def _imported(self, name: str) -> descriptor_pb2.FileDescriptorProto:
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
            return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        raise InvalidSchemaError(f"the import {name!r} has no reference")


WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
JSON_MESSAGES: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
TIMES: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})

_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES: Final = {number: name for name, number in LABELS.items()}
_MAX_ENUM: Final = (1 << 31) - 1
_TEXT: Final = (descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_BYTES)


def print_proto(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the text of a file. Parsing it returns the same descriptor, except for compiled custom options."""
    return "\n".join(_Printer(file).lines()) + "\n"


class _Printer:
    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._file = file

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            from google.protobuf.descriptor_pb2 import Edition

            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for number, name in enumerate(file.dependency):
            kind = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
            yield f"import {kind}{_quoted(name)};"
        yield from _statements(file)
        yield from self._types(file.message_type, file.enum_type, file.extension, set())
        for service in file.service:
            yield f"service {service.name} {{"
            yield from _indented(_statements(service))
            for method in service.method:
                yield from _indented(_method(method))
            yield "}"

    def _types(
        self,
        messages: Iterable[descriptor_pb2.DescriptorProto],
        enums: Iterable[descriptor_pb2.EnumDescriptorProto],
        extensions: Iterable[descriptor_pb2.FieldDescriptorProto],
        hidden: set[str],
    ) -> Iterator[str]:
        """Yield the types of a file or a message, except those declared by a field."""
        everything = {message.name: message for message in messages}
        groups = hidden | {
            _last(field.type_name)
            for field in extensions
            if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_GROUP
        }
        for message in everything.values():
            if message.name not in groups and not message.options.map_entry:
                yield f"message {message.name} {{"
                yield from _indented(self._message(message))
                yield "}"
        for enum in enums:
            yield f"enum {enum.name} {{"
            yield from _indented(_enum(enum))
            yield "}"
        for field in extensions:
            yield f"extend {field.extendee} {{"
            yield from _indented(self._field(field, everything))
            yield "}"

    def _message(self, message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
        yield from _statements(message)
        nested = {inner.name: inner for inner in message.nested_type}
        waiting = list(message.nested_type)
        done: set[int] = set()
        for field in message.field:
            yield from self._before(field, message, waiting)
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested)
            elif field.oneof_index not in done:
                done.add(field.oneof_index)
                yield from self._oneof(message, field.oneof_index, nested)
        yield from _reserved(message, MAX_NUMBER, 1)
        for numbers in message.extension_range:
            yield f"extensions {_range(numbers.start, numbers.end - 1, MAX_NUMBER)}{_brackets(_options(numbers))};"
        groups = {
            _last(field.type_name)
            for field in message.field
            if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_GROUP
        }
        yield from self._types(waiting, message.enum_type, message.extension, groups)

    def _before(
        self,
        field: descriptor_pb2.FieldDescriptorProto,
        message: descriptor_pb2.DescriptorProto,
        waiting: list[descriptor_pb2.DescriptorProto],
    ) -> Iterator[str]:
        """Yield the messages declared before the message of a field, so that all messages keep their indexes."""
        maps = {inner.name for inner in waiting if inner.options.map_entry}
        oneof = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        beside = [field] if oneof is None else [o for o in message.field if o.HasField("oneof_index")]
        made = {
            _last(other.type_name)
            for other in beside
            if (oneof is None or other.oneof_index == oneof)
            and (other.type == descriptor_pb2.FieldDescriptorProto.TYPE_GROUP or _last(other.type_name) in maps)
        }
        places = [place for place, inner in enumerate(waiting) if inner.name in made]
        if places:
            ahead = waiting[: places[0]]
            del waiting[: places[-1] + 1]
            yield from self._types(ahead, (), (), set())

    def _oneof(
        self, message: descriptor_pb2.DescriptorProto, index: int, nested: dict[str, descriptor_pb2.DescriptorProto]
    ) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{"
        yield from _indented(_statements(oneof))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from _indented(self._field(field, nested))
        yield "}"

    def _field(
        self, field: descriptor_pb2.FieldDescriptorProto, nested: dict[str, descriptor_pb2.DescriptorProto]
    ) -> Iterator[str]:
        options = list(_field_options(field))
        made = nested.get(_last(field.type_name)) if field.type_name else None
        if made is not None and made.options.map_entry:
            key, value = (_type(part) for part in made.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{_brackets(options)};"
            return
        label = f"{self._label(field)} ".lstrip()
        if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_GROUP and made is not None:
            yield f"{label}group {made.name} = {field.number}{_brackets(options)} {{"
            yield from _indented(self._message(made))
            yield "}"
            return
        yield f"{label}{_type(field)} {field.name} = {field.number}{_brackets(options)};"

    def _label(self, field: descriptor_pb2.FieldDescriptorProto) -> str:
        label = _LABEL_NAMES[field.label]
        if label != "optional" or field.proto3_optional:
            return label
        in_oneof = field.HasField("oneof_index")
        return "" if in_oneof or self._file.syntax else label


def _method(method: descriptor_pb2.MethodDescriptorProto) -> Iterator[str]:
    asked = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
    given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
    options = list(_statements(method))
    yield f"rpc {method.name} ({asked}) returns ({given}){' {' if options else ';'}"
    if options:
        yield from _indented(options)
        yield "}"


def _enum(enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
    yield from _statements(enum)
    for value in enum.value:
        yield f"{value.name} = {value.number}{_brackets(_options(value))};"
    yield from _reserved(enum, _MAX_ENUM, 0)


def _reserved(
    owner: descriptor_pb2.DescriptorProto | descriptor_pb2.EnumDescriptorProto, largest: int, above: int
) -> Iterator[str]:
    for numbers in owner.reserved_range:
        yield f"reserved {_range(numbers.start, numbers.end - above, largest)};"
    if owner.reserved_name:
        yield f"reserved {', '.join(map(_quoted, owner.reserved_name))};"


def _range(start: int, end: int, largest: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == largest else end}"


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return field.type_name or _SCALAR_NAMES[field.type]


def _field_options(field: descriptor_pb2.FieldDescriptorProto) -> Iterator[str]:
    if field.HasField("default_value"):
        text = field.default_value
        if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_BYTES:
            yield f'default = "{text.replace(chr(34), chr(92) + chr(34))}"'
        else:
            yield f"default = {_quoted(text) if field.type in _TEXT else text}"
    if field.HasField("json_name"):
        yield f"json_name = {_quoted(field.json_name)}"
    yield from _options(field)


def _options(owner: Any) -> Iterator[str]:  # noqa: ANN401 - any descriptor with options
    """Yield options as `name = value`."""
    for descriptor, value in owner.options.ListFields():
        if descriptor.name == "uninterpreted_option":
            yield from map(_kept, value)
        elif descriptor.is_extension or descriptor.name == "map_entry":
            continue
        elif descriptor.message_type is not None and not descriptor.is_repeated:
            yield from (f"{descriptor.name}.{inner}" for inner in _plain(value))
        elif descriptor.message_type is None:
            values = value if descriptor.is_repeated else [value]
            yield from (f"{descriptor.name} = {_value(descriptor, one)}" for one in values)


def _plain(message: Any) -> Iterator[str]:  # noqa: ANN401 - a message inside options, such as features
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None and not descriptor.is_extension:
            yield f"{descriptor.name} = {_value(descriptor, value)}"


def _value(descriptor: Any, value: Any) -> str:  # noqa: ANN401 - a field of Google's options
    if descriptor.enum_type is not None:
        return str(descriptor.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _kept(option: descriptor_pb2.UninterpretedOption) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f'{name} = "{_escaped(option.string_value)}"'
    for kind in ("identifier_value", "positive_int_value", "negative_int_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    return f"{name} = {option.double_value!r}"


def _statements(owner: Any) -> Iterator[str]:  # noqa: ANN401 - any descriptor with options
    return (f"option {text};" for text in _options(owner))


def _brackets(options: Iterable[str]) -> str:
    listed = ", ".join(options)
    return f" [{listed}]" if listed else ""


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else f'"{_escaped(text.encode())}"'


def _escaped(data: bytes) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"  # noqa: PLR2004 - ASCII
        for byte in data
    )

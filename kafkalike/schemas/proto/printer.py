"""A descriptor in, the text of a `.proto` file out: one way of writing for each descriptor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    UninterpretedOption,
)

from kafkalike.schemas.proto.parser import LABELS, MAX_NUMBER, SCALARS

_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES: Final = {number: name for name, number in LABELS.items()}
_MAX_ENUM: Final = (1 << 31) - 1
_TEXT: Final = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)


def print_proto(file: FileDescriptorProto) -> str:
    """The text of a file. Reading it gives the same descriptor, but for options of others that were compiled."""
    return "\n".join(_Printer(file).lines()) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto) -> None:
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
        messages: Iterable[DescriptorProto],
        enums: Iterable[EnumDescriptorProto],
        extensions: Iterable[FieldDescriptorProto],
        hidden: set[str],
    ) -> Iterator[str]:
        """Types of a file or a message, but for those that a field makes."""
        everything = {message.name: message for message in messages}
        groups = hidden | {
            _last(field.type_name) for field in extensions if field.type == FieldDescriptorProto.TYPE_GROUP
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

    def _message(self, message: DescriptorProto) -> Iterator[str]:
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
        groups = {_last(field.type_name) for field in message.field if field.type == FieldDescriptorProto.TYPE_GROUP}
        yield from self._types(waiting, message.enum_type, message.extension, groups)

    def _before(
        self, field: FieldDescriptorProto, message: DescriptorProto, waiting: list[DescriptorProto]
    ) -> Iterator[str]:
        """The messages that stand in front of the one that a field makes: a message's number must stay its own."""
        maps = {inner.name for inner in waiting if inner.options.map_entry}
        oneof = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        beside = [field] if oneof is None else [o for o in message.field if o.HasField("oneof_index")]
        made = {
            _last(other.type_name)
            for other in beside
            if (oneof is None or other.oneof_index == oneof)
            and (other.type == FieldDescriptorProto.TYPE_GROUP or _last(other.type_name) in maps)
        }
        places = [place for place, inner in enumerate(waiting) if inner.name in made]
        if places:
            ahead = waiting[: places[0]]
            del waiting[: places[-1] + 1]
            yield from self._types(ahead, (), (), set())

    def _oneof(self, message: DescriptorProto, index: int, nested: dict[str, DescriptorProto]) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{"
        yield from _indented(_statements(oneof))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from _indented(self._field(field, nested))
        yield "}"

    def _field(self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto]) -> Iterator[str]:
        options = list(_field_options(field))
        made = nested.get(_last(field.type_name)) if field.type_name else None
        if made is not None and made.options.map_entry:
            key, value = (_type(part) for part in made.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{_brackets(options)};"
            return
        label = f"{self._label(field)} ".lstrip()
        if field.type == FieldDescriptorProto.TYPE_GROUP and made is not None:
            yield f"{label}group {made.name} = {field.number}{_brackets(options)} {{"
            yield from _indented(self._message(made))
            yield "}"
            return
        yield f"{label}{_type(field)} {field.name} = {field.number}{_brackets(options)};"

    def _label(self, field: FieldDescriptorProto) -> str:
        label = _LABEL_NAMES[field.label]
        if label != "optional" or field.proto3_optional:
            return label
        in_oneof = field.HasField("oneof_index")
        return "" if in_oneof or self._file.syntax else label


def _method(method: MethodDescriptorProto) -> Iterator[str]:
    asked = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
    given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
    options = list(_statements(method))
    yield f"rpc {method.name} ({asked}) returns ({given}){' {' if options else ';'}"
    if options:
        yield from _indented(options)
        yield "}"


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield from _statements(enum)
    for value in enum.value:
        yield f"{value.name} = {value.number}{_brackets(_options(value))};"
    yield from _reserved(enum, _MAX_ENUM, 0)


def _reserved(owner: DescriptorProto | EnumDescriptorProto, largest: int, above: int) -> Iterator[str]:
    for numbers in owner.reserved_range:
        yield f"reserved {_range(numbers.start, numbers.end - above, largest)};"
    if owner.reserved_name:
        yield f"reserved {', '.join(map(_quoted, owner.reserved_name))};"


def _range(start: int, end: int, largest: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == largest else end}"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _SCALAR_NAMES[field.type]


def _field_options(field: FieldDescriptorProto) -> Iterator[str]:
    if field.HasField("default_value"):
        text = field.default_value
        if field.type == FieldDescriptorProto.TYPE_BYTES:
            yield f'default = "{text.replace(chr(34), chr(92) + chr(34))}"'
        else:
            yield f"default = {_quoted(text) if field.type in _TEXT else text}"
    if field.HasField("json_name"):
        yield f"json_name = {_quoted(field.json_name)}"
    yield from _options(field)


def _options(owner: Any) -> Iterator[str]:  # noqa: ANN401 - any descriptor with options
    """Options as `name = value`."""
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


def _kept(option: UninterpretedOption) -> str:
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

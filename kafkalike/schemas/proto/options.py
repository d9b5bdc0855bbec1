"""Options of a `.proto` file: the standard ones become fields of Google's messages, others are kept as written."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.proto.tokens import Tokens, to_int

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32}
Value = tuple[str, Any]
"""A kind (`word`, `int`, `float`, `string`, `aggregate`) and the value."""


def read_option(tokens: Tokens, options: Any) -> None:  # noqa: ANN401 - any of Google's options messages
    """Read `name = value` into an options message."""
    name = _name(tokens)
    tokens.expect("=")
    set_option(options, name, read_value(tokens))


def read_field_options(tokens: Tokens, field: FieldDescriptorProto) -> None:
    """Read what stands in brackets behind a field, if there is any."""
    if not tokens.accept("["):
        return
    while True:
        name = _name(tokens)
        tokens.expect("=")
        value = read_value(tokens)
        if name == [("default", False)]:
            field.default_value = _default(value)
        elif name == [("json_name", False)]:
            field.json_name = value[1].decode(errors="replace") if value[0] == "string" else str(value[1])
        else:
            set_option(field.options, name, value)
        if not tokens.accept(","):
            break
    tokens.expect("]")


def read_options(tokens: Tokens, owner: Any) -> None:  # noqa: ANN401 - any descriptor with options
    """Read what stands in brackets behind something else than a field, if there is any."""
    if not tokens.accept("["):
        return
    read_option(tokens, owner.options)
    while tokens.accept(","):
        read_option(tokens, owner.options)
    tokens.expect("]")


def _name(tokens: Tokens) -> list[tuple[str, bool]]:
    parts: list[tuple[str, bool]] = []
    while True:
        if tokens.accept("("):
            parts.append((tokens.name(), True))
            tokens.expect(")")
        else:
            parts.append((tokens.next("word"), False))
        if not tokens.accept("."):
            return parts


def read_value(tokens: Tokens) -> Value:
    """Read an option's value."""
    if tokens.sees("{"):
        return "aggregate", _aggregate(tokens)
    if tokens.sees_kind("string"):
        return "string", tokens.string()
    negative = tokens.accept("-")
    if not negative:
        tokens.accept("+")
    if tokens.sees_kind("word"):
        word = tokens.any()
        return ("float", -float(word)) if negative else ("word", word)
    text = tokens.next("number")
    whole = to_int(text)
    if whole is not None:
        return "int", -whole if negative else whole
    number = float(text.rstrip("fF"))
    return "float", -number if negative else number


def _aggregate(tokens: Tokens) -> str:
    parts: list[str] = []
    depth = 0
    while True:
        text = tokens.any()
        depth += (text == "{") - (text == "}")
        if depth == 0:
            return " ".join(parts[1:])
        parts.append(text)


def _default(value: Value) -> str:
    kind, found = value
    if kind == "string":
        # Bytes are written with escapes, text as it is; a field of text never holds what is no UTF-8.
        try:
            return str(found.decode())
        except UnicodeDecodeError:
            return "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in found)  # noqa: PLR2004 - ASCII
    return str(found)


def set_option(options: Any, name: list[tuple[str, bool]], value: Value) -> None:  # noqa: ANN401
    """Set an option of Google's by its name, or keep it as written."""
    owner = options
    for position, (part, is_extension) in enumerate(name):
        field = None if is_extension else owner.DESCRIPTOR.fields_by_name.get(part)
        if field is None:
            break
        if position == len(name) - 1:
            fits, found = _fitting(field, value)
            if not fits:
                break
            if field.is_repeated:
                getattr(owner, part).append(found)
            else:
                setattr(owner, part, found)
            return
        if field.message_type is None or field.is_repeated:
            break
        owner = getattr(owner, part)
    _keep(options.uninterpreted_option.add(), name, value)


def _fitting(field: FieldDescriptor, value: Value) -> tuple[bool, Any]:
    kind, found = value
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return found in {"true", "false"}, found == "true"
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(found) if kind == "word" else None
        return known is not None, known.number if known is not None else 0
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return kind == "string", found.decode(errors="replace") if kind == "string" else ""
    if field.cpp_type in _INTEGERS:
        return kind == "int", found
    return False, None


def _keep(option: UninterpretedOption, name: list[tuple[str, bool]], value: Value) -> None:
    for part, is_extension in name:
        option.name.add(name_part=part, is_extension=is_extension)
    kind, found = value
    if kind == "word":
        option.identifier_value = found
    elif kind == "string":
        option.string_value = found
    elif kind == "aggregate":
        option.aggregate_value = found
    elif kind == "int" and -(1 << 63) <= found < 0:
        option.negative_int_value = found
    elif kind == "int" and 0 <= found < 1 << 64:
        option.positive_int_value = found
    else:
        try:
            option.double_value = float(found)
        except OverflowError as cause:
            raise InvalidSchemaError(
                f"an option of the Protobuf schema has a number that is too large: {cause}"
            ) from cause

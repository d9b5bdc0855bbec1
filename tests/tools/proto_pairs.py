"""Protobuf pairs: hypothesis's files, each with a message of its own."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    any_pb2,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

WELL_KNOWN: dict[str, Any] = {
    ".google.protobuf.Timestamp": timestamp_pb2,
    ".google.protobuf.Duration": duration_pb2,
    ".google.protobuf.Any": any_pb2,
    ".google.protobuf.Struct": struct_pb2,
    ".google.protobuf.StringValue": wrappers_pb2,
    ".google.protobuf.Int64Value": wrappers_pb2,
}
_SCALARS = sorted(set(FieldDescriptorProto.Type.values()) - {10, 11, 14})
_KEYS = [t for t in _SCALARS if t not in {1, 2, 12}]
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
}


@st.composite
def files(draw: st.DrawFn) -> FileDescriptorProto:
    """A file of proto2 or proto3 with one to three messages."""
    proto3 = draw(st.booleans())
    file = FileDescriptorProto(name="pair.proto", package=draw(st.sampled_from(["", "p", "p.q"])))
    if proto3:
        file.syntax = "proto3"
    enum = file.enum_type.add(name="E")
    for number in range(draw(st.integers(1, 3))):
        enum.value.add(name=f"E{number}", number=number)
    names = [f"M{number}" for number in range(draw(st.integers(1, 3)))]
    prefix = f".{file.package}." if file.package else "."
    for name in names:
        types = [prefix + other for other in names]
        draw(_fill(file.message_type.add(name=name), prefix + name, types, f"{prefix}E", proto3=proto3, depth=1))
    used = {field.type_name for field in _fields(file.message_type)} & set(WELL_KNOWN)
    file.dependency.extend(sorted({WELL_KNOWN[name].DESCRIPTOR.name for name in used}))
    return file


def _fields(messages: Any) -> list[FieldDescriptorProto]:
    return [f for m in messages for f in (*m.field, *_fields(m.nested_type))]


@st.composite
def _fill(  # noqa: C901, PLR0912 - one branch for each kind
    draw: st.DrawFn, message: DescriptorProto, path: str, types: list[str], enum: str, *, proto3: bool, depth: int
) -> None:
    if depth and draw(st.booleans()):
        inner = message.nested_type.add(name="In")
        draw(_fill(inner, f"{path}.In", types, enum, proto3=proto3, depth=depth - 1))
        types = [*types, f"{path}.In"]
    oneofs = draw(st.integers(0, 1))
    optional: list[FieldDescriptorProto] = []
    for number in range(1, draw(st.integers(1, 6))):
        kind = draw(
            st.sampled_from(["scalar", "scalar", "repeated", "message", "messages", "enum", "map", "known", "oneof"])
        )
        field: Any = message.field.add(name=f"f{number}", number=number, label=_OPTIONAL)
        if kind == "map":
            entry = message.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=_OPTIONAL, type=draw(st.sampled_from(_KEYS)))
            value = entry.field.add(name="value", number=2, label=_OPTIONAL)
            _typed(draw, value, types, enum)
            field.label, field.type, field.type_name = _REPEATED, 11, f"{path}.{entry.name}"
            continue
        if kind in {"message", "messages"}:
            field.type, field.type_name = 11, draw(st.sampled_from(types))
        elif kind == "known":
            field.type, field.type_name = 11, draw(st.sampled_from(sorted(WELL_KNOWN)))
        elif kind == "enum":
            field.type, field.type_name = 14, enum
        else:
            field.type = draw(st.sampled_from(_SCALARS))
        if kind in {"repeated", "messages"}:
            field.label = _REPEATED
        elif kind == "oneof" and oneofs:
            field.oneof_index = 0
        elif kind == "scalar" and proto3 and draw(st.booleans()):
            field.proto3_optional = True
            optional.append(field)
        elif kind == "scalar" and not proto3 and draw(st.integers(0, 5)) == 0:
            field.label = _REQUIRED
    chosen = [f for f in message.field if f.HasField("oneof_index")]
    if chosen:
        # In a text they stand side by side.
        message.oneof_decl.add(name="choice")
        ordered = [f for f in message.field if not f.HasField("oneof_index")] + chosen
        copies = DescriptorProto(field=ordered)
        del message.field[:]
        message.field.extend(copies.field)
        optional = [f for f in message.field if f.proto3_optional]
    for field in optional:
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _typed(draw: st.DrawFn, field: Any, types: list[str], enum: str) -> None:
    kind = draw(st.sampled_from(["scalar", "message", "enum"]))
    if kind == "scalar":
        field.type = draw(st.sampled_from(_SCALARS))
    else:
        field.type, field.type_name = (11, draw(st.sampled_from(types))) if kind == "message" else (14, enum)


def pool_of(file: FileDescriptorProto) -> DescriptorPool:
    """A pool with a file and what it imports."""
    pool = DescriptorPool()
    for module in dict.fromkeys(WELL_KNOWN.values()):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool


@st.composite
def filled(draw: st.DrawFn, message: type[Message], depth: int = 3) -> Message:  # noqa: C901 - one branch for each kind
    """A message of a class, with values in some of its fields; required ones have one."""
    made = message()
    fields: Any = made.DESCRIPTOR.fields
    for field in fields:
        if not field.is_required and draw(st.integers(0, 2)) == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
            for _ in range(draw(st.integers(0, 2))):
                at = draw(_value(key))
                if value.message_type is None:
                    getattr(made, field.name)[at] = draw(_value(value))
                elif depth:
                    getattr(made, field.name)[at].CopyFrom(draw(filled(GetMessageClass(value.message_type), depth - 1)))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 2))):
                if field.message_type is None:
                    getattr(made, field.name).append(draw(_value(field)))
                elif depth:
                    getattr(made, field.name).add().CopyFrom(
                        draw(filled(GetMessageClass(field.message_type), depth - 1))
                    )
        elif field.message_type is None:
            setattr(made, field.name, draw(_value(field)))
        elif depth:
            getattr(made, field.name).CopyFrom(draw(filled(GetMessageClass(field.message_type), depth - 1)))
    return made


def _value(field: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    kind = field.cpp_type
    if kind in _INTEGERS:
        return _INTEGERS[kind]
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind == FieldDescriptor.CPPTYPE_FLOAT:
        return st.floats(width=32, allow_nan=False)
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats(allow_nan=False)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=8)
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def classes_with_messages(draw: st.DrawFn) -> tuple[type[Message], Message]:
    """A class of a message, perhaps one inside another, and a message."""
    file = draw(files())
    descriptor = pool_of(file).FindFileByName(file.name)
    messages: list[Any] = list(descriptor.message_types_by_name.values())
    chosen = draw(st.sampled_from(messages))
    inner: list[Any] = [nested for nested in chosen.nested_types if not nested.GetOptions().map_entry]
    if inner:
        chosen = draw(st.sampled_from([chosen, *inner]))
    made = GetMessageClass(chosen)
    message = draw(filled(made))
    if not message.IsInitialized():
        message = made()
        message = draw(filled(made, 0)) if not message.IsInitialized() else message
    return made, message

"""Parser of `.proto` files (proto2, proto3, editions): returns a descriptor with unresolved type names."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2

from kafkalike.schemas.proto.tokens import Tokens, read_field_options, read_option, read_options

SCALARS: Final[dict[str, Any]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
    if name not in {"TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM"}
}
TYPE_NAMES: Final[dict[int, str]] = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
"""Names of the types of fields by number, including `group`, `message` and `enum`."""
LABELS: Final[dict[str, Any]] = {
    name.removeprefix("LABEL_").lower(): number for name, number in descriptor_pb2.FieldDescriptorProto.Label.items()
}
MAX_NUMBER: Final = (1 << 29) - 1
"""Largest number of a field."""
_MAX_ENUM: Final = (1 << 31) - 1
_KEYS: Final = frozenset(SCALARS) - {"float", "double", "bytes"}


def parse_proto(text: str, name: str = "") -> descriptor_pb2.FileDescriptorProto:
    """Parse a `.proto` file.

    Args:
        text: the file's text.
        name: the file's name in imports.

    Returns:
        The descriptor that protoc would return, except that type names are unresolved, because a pool resolves them,
        and that custom options are uninterpreted.

    Raises:
        InvalidSchemaError: the text is not a `.proto` file; the message names the line.
    """
    return _Parser(Tokens(text), descriptor_pb2.FileDescriptorProto(name=name)).file()


class _Parser:
    def __init__(self, tokens: Tokens, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._tokens = tokens
        self._file = file

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        tokens, file = self._tokens, self._file
        self._syntax()
        while not tokens.ended:
            if tokens.accept("import"):
                self._import()
            elif tokens.accept("package"):
                file.package = tokens.name()
                tokens.expect(";")
            elif tokens.accept("service"):
                self._service(file.service.add())
            elif not self._definition(file, file.message_type, file.extension):
                tokens.refuse("a message, an enum or another part of a file is expected")
        return file

    def _definition(self, owner: Any, messages: Any, extensions: Any) -> bool:  # noqa: ANN401 - a file or a message
        """Parse a definition that files and messages may contain; return False if something else follows."""
        tokens = self._tokens
        if tokens.accept(";"):
            return True
        if tokens.accept("option"):
            read_option(tokens, owner.options)
            tokens.expect(";")
        elif tokens.accept("message"):
            self._message(messages.add(name=tokens.next("word")))
        elif tokens.accept("enum"):
            self._enum(owner.enum_type.add(name=tokens.next("word")))
        elif tokens.accept("extend"):
            self._extend(extensions, messages)
        else:
            return False
        return True

    def _syntax(self) -> None:
        tokens, file = self._tokens, self._file
        while tokens.accept(";"):
            pass
        if tokens.accept("syntax"):
            tokens.expect("=")
            syntax = tokens.text()
            if syntax not in {"proto2", "proto3"}:
                tokens.refuse(f"the syntax {syntax!r} is unknown")
            if syntax == "proto3":
                file.syntax = syntax
            tokens.expect(";")
        elif tokens.accept("edition"):
            tokens.expect("=")
            edition = f"EDITION_{tokens.text()}"
            if edition not in descriptor_pb2.Edition.keys():  # noqa: SIM118 - Google's wrapper has no `in`
                tokens.refuse(f"the {edition} is unknown")
            file.syntax = "editions"
            file.edition = descriptor_pb2.Edition.Value(edition)
            tokens.expect(";")

    def _import(self) -> None:
        tokens, file = self._tokens, self._file
        public, weak = tokens.accept("public"), tokens.accept("weak")
        if public:
            file.public_dependency.append(len(file.dependency))
        if weak:
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(tokens.text())
        tokens.expect(";")

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("{")
        while not tokens.accept("}"):
            self._part_of_message(message)
        self._name_optional_fields(message)

    def _part_of_message(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        if tokens.follows("oneof") and not tokens.follows("oneof", "."):
            self._oneof(message)
        elif tokens.accept("reserved"):
            self._reserved(message, MAX_NUMBER, 1)
        elif tokens.accept("extensions"):
            self._extensions(message)
        elif tokens.follows("map", "<"):
            self._map(message)
        elif not self._definition(message, message.nested_type, message.extension):
            self._field(message.field.add(), message.nested_type)

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("oneof")
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=tokens.next("word"))
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.accept("option"):
                read_option(tokens, oneof.options)
                tokens.expect(";")
            elif not tokens.accept(";"):
                field = message.field.add(oneof_index=index)
                self._field(field, message.nested_type)
                if field.label != descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL or field.proto3_optional:
                    tokens.refuse("a field of a oneof has no label")

    def _field(self, field: descriptor_pb2.FieldDescriptorProto, messages: Any) -> None:  # noqa: ANN401 - a list of messages
        tokens, file = self._tokens, self._file
        label = next((label for label in LABELS if tokens.accept(label)), None)
        if label is None and not file.syntax and not field.HasField("oneof_index"):
            tokens.refuse("a field of proto2 begins with optional, required or repeated")
        if label == "required" and file.syntax:
            tokens.refuse(f"{file.syntax} has no required fields")
        if label == "optional" and file.syntax == "proto3":
            field.proto3_optional = True
        field.label = LABELS[label or "optional"]
        if tokens.accept("group"):
            self._group(field, messages)
            return
        _set_type(field, tokens.name())
        field.name = tokens.next("word")
        self._number(field)
        read_field_options(tokens, field)
        tokens.expect(";")

    def _group(self, field: descriptor_pb2.FieldDescriptorProto, messages: Any) -> None:  # noqa: ANN401
        tokens = self._tokens
        message = messages.add(name=tokens.next("word"))
        field.name, field.type_name, field.type = (
            message.name.lower(),
            message.name,
            descriptor_pb2.FieldDescriptorProto.TYPE_GROUP,
        )
        self._number(field)
        read_field_options(tokens, field)
        self._message(message)

    def _number(self, field: descriptor_pb2.FieldDescriptorProto) -> None:
        self._tokens.expect("=")
        number = self._tokens.integer()
        if not 0 < number <= MAX_NUMBER:
            self._tokens.refuse(f"the number of {field.name!r} is not between 1 and {MAX_NUMBER}")
        field.number = number

    def _map(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("map", "<")
        key = tokens.next("word")
        if key not in _KEYS:
            tokens.refuse(f"{key!r} cannot be a map's key")
        tokens.expect(",")
        value = tokens.name()
        tokens.expect(">")
        field = message.field.add(name=tokens.next("word"), label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED)
        entry = message.nested_type.add(name=_entry_name(field.name))
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(
                entry.field.add(name=part, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL),
                kind,
            )
        field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, entry.name
        self._number(field)
        read_field_options(tokens, field)
        tokens.expect(";")

    def _reserved(self, owner: Any, largest: int, above: int) -> None:  # noqa: ANN401 - a message or an enum
        tokens = self._tokens
        while True:
            if tokens.sees_kind("string"):
                owner.reserved_name.append(tokens.text())
            elif tokens.sees_kind("word"):
                owner.reserved_name.append(tokens.next("word"))
            else:
                start, end = self._range(largest)
                owner.reserved_range.add(start=start, end=end + above)
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def _range(self, largest: int) -> tuple[int, int]:
        tokens = self._tokens
        start = end = tokens.integer()
        if tokens.accept("to"):
            end = largest if tokens.accept("max") else tokens.integer()
        if not -largest - 2 < start <= end <= largest:
            tokens.refuse("the range has no numbers")
        return start, end

    def _extensions(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        first = len(message.extension_range)
        while True:
            start, end = self._range(MAX_NUMBER)
            message.extension_range.add(start=start, end=end + 1)
            if not tokens.accept(","):
                break
        read_options(tokens, message.extension_range[first])
        for later in message.extension_range[first + 1 :]:
            later.options.CopyFrom(message.extension_range[first].options)
        tokens.expect(";")

    def _extend(self, extensions: Any, messages: Any) -> None:  # noqa: ANN401
        tokens = self._tokens
        extended = tokens.name()
        tokens.expect("{")
        while not tokens.accept("}"):
            if not tokens.accept(";"):
                self._field(extensions.add(extendee=extended), messages)

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.accept(";"):
                continue
            if tokens.follows("option") and not tokens.follows("option", "="):
                tokens.expect("option")
                read_option(tokens, enum.options)
                tokens.expect(";")
            elif tokens.follows("reserved") and not tokens.follows("reserved", "="):
                tokens.expect("reserved")
                self._reserved(enum, _MAX_ENUM, 0)
            else:
                value = enum.value.add(name=tokens.next("word"))
                tokens.expect("=")
                number = tokens.integer()
                if not -_MAX_ENUM - 2 < number <= _MAX_ENUM:
                    tokens.refuse(f"the number of {value.name!r} does not fit into 32 bits")
                value.number = number
                read_options(tokens, value)
                tokens.expect(";")

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> None:
        tokens = self._tokens
        service.name = tokens.next("word")
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.accept("option"):
                read_option(tokens, service.options)
                tokens.expect(";")
            elif not tokens.accept(";"):
                tokens.expect("rpc")
                self._method(service.method.add(name=tokens.next("word")))

    def _method(self, method: descriptor_pb2.MethodDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("(")
        method.client_streaming = tokens.accept("stream")
        method.input_type = tokens.name()
        tokens.expect(")", "returns", "(")
        method.server_streaming = tokens.accept("stream")
        method.output_type = tokens.name()
        tokens.expect(")")
        if tokens.accept("{"):
            while not tokens.accept("}"):
                if not tokens.accept(";"):
                    tokens.expect("option")
                    read_option(tokens, method.options)
                    tokens.expect(";")
        else:
            tokens.expect(";")

    @staticmethod
    def _name_optional_fields(message: descriptor_pb2.DescriptorProto) -> None:
        """Add the oneof that protoc generates for each `optional` field of proto3, after the explicit ones."""
        names = {known.name for known in message.field} | {known.name for known in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in names:
                    name = f"X{name}"
                names.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)


def _set_type(field: descriptor_pb2.FieldDescriptorProto, name: str) -> None:
    """Set a scalar type, or the name of a message or an enum."""
    scalar = SCALARS.get(name)
    if scalar is None:
        field.type_name = name
    else:
        field.type = scalar


def _entry_name(field: str) -> str:
    """Return protoc's name for the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"

"""Detect fields of a Protobuf message whose value changes its meaning between the writer's and the reader's schema.

Protobuf identifies fields by number and decodes their bytes as the reader's type. If the type has changed, a 64-bit
number is truncated to 32 bits, -1 becomes 4,294,967,295, a `sint32` becomes another number, and a number that became a
Timestamp is dropped. Google's own messages are decoded as each other, only the last of two fields survives if they
moved into one `oneof`, and a closed enum drops unknown numbers. For messages with such a change, the value is parsed
with both schemas, and the results must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kafkalike.schemas.proto.parser import TYPE_NAMES
from kafkalike.schemas.proto.proto_files import JSON_MESSAGES, TIMES, WRAPPERS

Check = Callable[[Any, Any], None]
"""Compares the writer's message with the reader's; raises ValueError for the first field that differs."""

_F: Final = FieldDescriptor
_FORMS: Final = (
    {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
)
"""Sets of types with the same encoding, whose values may mean the same."""
_NUMBERS: Final = frozenset(number for number in range(1, 19)) - {
    _F.TYPE_STRING,
    _F.TYPE_BYTES,
    _F.TYPE_MESSAGE,
    _F.TYPE_GROUP,
}


def check_of(writer: Descriptor, reader: Descriptor) -> Check | None:
    """Return a function that compares messages of two versions; None if no field has changed its type."""
    made = _Checks()
    check = made.of(writer, reader)
    return check if made.changed else None


class _Checks:
    def __init__(self) -> None:
        self.changed = False
        self._known: dict[tuple[str, str], dict[str, Check]] = {}

    def of(self, writer: Descriptor, reader: Descriptor) -> Check:
        pair = writer.full_name, reader.full_name
        fields = self._known.get(pair)
        if fields is None:
            # Stored before its fields are complete, because a message may be nested in itself.
            fields = self._known[pair] = {}
            for number, wrote in writer.fields_by_number.items():
                reads = reader.fields_by_number.get(number)
                check = None if reads is None else self._of_field(wrote, reads)
                if check is not None:
                    fields[wrote.name] = check
        choices = self._choices(writer, reader)

        def check_message(written: Any, read: Any) -> None:  # noqa: ANN401
            there = written.ListFields()
            for names in choices:
                given = [field.name for field, _ in there if field.name in names]
                if len(given) > 1:
                    raise ValueError(f"{' and '.join(given)} are set, of which the reader takes one")
            for field, _ in there:
                check = fields.get(field.name)
                if check is not None:
                    check(written, read)

        return check_message

    def _choices(self, writer: Descriptor, reader: Descriptor) -> list[set[str]]:
        """Return sets of the writer's fields that the reader has in one `oneof`, but the writer does not."""
        found = []
        for choice in reader.oneofs:
            numbers = [field.number for field in choice.fields]
            wrote = [writer.fields_by_number[one] for one in numbers if one in writer.fields_by_number]
            before = {field.name if field.containing_oneof is None else field.containing_oneof for field in wrote}
            if len(before) > 1:
                self.changed = True
                found.append({field.name for field in wrote})
        return found

    def _of_field(self, wrote: FieldDescriptor, reads: FieldDescriptor) -> Check | None:
        if _is_map(wrote) and _is_map(reads):
            return self._of_map(wrote, reads)
        if wrote.is_repeated != reads.is_repeated:
            self.changed = True
            if wrote.type in _NUMBERS or _is_map(wrote) or _is_map(reads):
                # Repeated numbers are packed, without the field number before each of them.
                return _refused(wrote, reads)
        if wrote.type == reads.type and _same_form(wrote, reads) and not _loses_numbers(wrote, reads):
            if wrote.message_type is None or reads.message_type is None:
                return _equal(wrote, reads) if wrote.is_repeated != reads.is_repeated else None
            return _each(wrote, reads, self.of(wrote.message_type, reads.message_type))
        self.changed = True
        return _equal(wrote, reads) if _same_form(wrote, reads) else _refused(wrote, reads)

    def _of_map(self, wrote: FieldDescriptor, reads: FieldDescriptor) -> Check:
        parts = [(_part(wrote, name), _part(reads, name)) for name in ("key", "value")]
        is_same_form = all(_same_form(one, other) for one, other in parts)
        if not is_same_form or any(one.type != other.type or _loses_numbers(one, other) for one, other in parts):
            self.changed = True
        if not is_same_form:
            return _refused(wrote, reads)
        item, other = parts[1]
        if item.message_type is None or other.message_type is None:
            return _equal(wrote, reads)
        inner = self.of(item.message_type, other.message_type)

        def check(written: Any, read: Any) -> None:  # noqa: ANN401
            before, after = getattr(written, wrote.name), getattr(read, reads.name)
            if set(map(_plain, before)) != set(map(_plain, after)):
                raise ValueError(f"{reads.name}: the keys of the writer's {_words(wrote)} are others now")
            after = {_plain(key): value for key, value in after.items()}
            for key, value in before.items():
                inner(value, after[_plain(key)])

        return check


def _refused(wrote: FieldDescriptor, reads: FieldDescriptor) -> Check:
    def check(written: Any, read: Any) -> None:  # noqa: ANN401
        del written, read
        raise ValueError(f"{reads.name}: the writer's {_words(wrote)} became {_words(reads)}, which has another form")

    return check


def _equal(wrote: FieldDescriptor, reads: FieldDescriptor) -> Check:
    def check(written: Any, read: Any) -> None:  # noqa: ANN401
        before, after = _values(wrote, written), _values(reads, read)
        if before != after:
            raise ValueError(
                f"{reads.name}: the writer's {_words(wrote)} does not fit {_words(reads)}: {str(before)[:60]}"
            )

    return check


def _each(wrote: FieldDescriptor, reads: FieldDescriptor, check_message: Check) -> Check:
    """Return a check of nested messages."""

    def check(written: Any, read: Any) -> None:  # noqa: ANN401
        before, after = _listed(wrote, written), _listed(reads, read)
        if len(before) != len(after):
            raise ValueError(
                f"{reads.name}: the writer's {_words(wrote)} does not fit {_words(reads)}: {len(before)} values"
            )
        for one, other in zip(before, after, strict=True):
            check_message(one, other)

    return check


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _part(field: FieldDescriptor, name: str) -> FieldDescriptor:
    """Return the key or value field of a map."""
    assert field.message_type is not None, "it is a map"
    return field.message_type.fields_by_name[name]


def _same_form(wrote: FieldDescriptor, reads: FieldDescriptor) -> bool:
    if wrote.type == reads.type:
        return _same_meaning(wrote, reads)
    return any({wrote.type, reads.type} <= form for form in _FORMS)


def _same_meaning(wrote: FieldDescriptor, reads: FieldDescriptor) -> bool:
    """Return True if two messages mean the same. Google's well-known types mean more than their fields."""
    if wrote.message_type is None or reads.message_type is None:
        return True
    names = {wrote.message_type.full_name, reads.message_type.full_name}
    return len(names) == 1 or names <= WRAPPERS or not names & (WRAPPERS | JSON_MESSAGES | TIMES)


def _loses_numbers(wrote: FieldDescriptor, reads: FieldDescriptor) -> bool:
    """Return True if the reader's enum drops unknown numbers, and the writer's enum may contain them."""
    if wrote.enum_type is None or reads.enum_type is None or not reads.enum_type.is_closed:
        return False
    known, may_be = set(reads.enum_type.values_by_number), set(wrote.enum_type.values_by_number)
    return not wrote.enum_type.is_closed or not may_be <= known


def _listed(field: FieldDescriptor, message: Any) -> list[Any]:  # noqa: ANN401
    found = getattr(message, field.name)
    return list(found) if field.is_repeated else [found]


def _values(field: FieldDescriptor, message: Any) -> Any:  # noqa: ANN401
    found = getattr(message, field.name)
    if _is_map(field):
        return {_plain(key): _plain(value) for key, value in found.items()}
    return [_plain(one) for one in _listed(field, message)]


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return value.encode()
    # NaN is not equal to itself.
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _words(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    name = TYPE_NAMES[field.type] if named is None else named.full_name
    return f"repeated {name}" if field.is_repeated else name

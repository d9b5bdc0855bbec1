"""Plan of nodes that reads Avro values of a writer's schema as the columns of a reader's schema.

Avro's resolution rules are applied once per pair of schemas: fields by name or alias, defaults for fields that the
writer lacks, promotion of numbers, enums with a default, unions. If the reader cannot read one branch of a union, only
values of that branch fail.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow import avro_arrow_types as arrow_types
from kafkalike.schemas.arrow import avro_nodes as nodes
from kafkalike.schemas.arrow.column_reader import Problems, UnmatchedError, ValueReader, check_type
from kafkalike.schemas.arrow.cursor import Cursor, Numbers
from kafkalike.schemas.avro_schema import AvroField, AvroType, parse_avro
from kafkalike.schemas.schema_source import SchemaSource

_MEANINGS: Final = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time",
    ("long", "time-micros"): "time",
    **{("long", f"timestamp-{unit}"): "instant" for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): "local time" for unit in ("millis", "micros", "nanos")},
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
    ("fixed", "duration"): "duration",
    ("string", "uuid"): "uuid",
    ("fixed", "uuid"): "uuid",
}
"""Meanings of logical types; types of the same meaning are converted into each other."""

Around = tuple[str, ...]
"""Names of the enclosing records of the reader."""

_NUMBERS: Final = ("int", "long", "float", "double")
_TEXTS: Final = frozenset({"string", "bytes"})
_UNITS: Final = {"millis": 1000, "micros": 1, "nanos": -1000}
"""Microseconds per unit; a negative number is units per microsecond."""


def plan(writer: AvroType, reader: AvroType, depth: int) -> nodes.Node:
    """Return a node that reads values of the writer's schema as structs of the reader's columns.

    Raises:
        UnmatchedError: the reader can read no value of the writer's schema.
    """
    made = _Plan(depth)
    node = made.node(writer, reader, ())
    if reader.kind == "record":
        return node
    return nodes.RecordNode(pa.struct([pa.field(arrow_types.VALUE, made.kind(reader, ()))]), [(node, 0)], [])


class _MeaningError(UnmatchedError):
    """A field of the reader has another meaning than the writer's field.

    Args:
        reason: describes both types.
        path: names of the enclosing fields and the field.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class _Plan:
    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._skips: dict[str, nodes.SkippedNode] = {}

    def kind(self, wants: AvroType, around: Around) -> pa.DataType:
        return arrow_types.arrow_type(wants, self._depth, around)

    def node(self, wrote: AvroType, wants: AvroType, around: Around) -> nodes.Node:
        kind = self.kind(wants, around)
        assert kind is not None, "what has no column is gone past"
        if wrote.kind == "union":
            return nodes.UnionNode(kind, [self._branch(branch, wants, around) for branch in wrote.branches])
        if wants.kind == "union":
            return self._chosen(wrote, wants, around, kind)
        if wrote.kind == wants.kind == "record":
            return self._record(wrote, wants, around, kind)
        if wrote.kind == wants.kind and wrote.items is not None and wants.items is not None:
            key = nodes.BytesNode(arrow_types.string_array) if wrote.kind == "map" else None
            return nodes.ItemsNode(kind, self.node(wrote.items, wants.items, around), key)
        return _leaf(wrote, wants, kind)

    def _branch(self, branch: AvroType, wants: AvroType, around: Around) -> nodes.Node | str:
        try:
            return self.node(branch, wants, around)
        except UnmatchedError as cause:
            return str(cause)

    def _chosen(self, wrote: AvroType, wants: AvroType, around: Around, kind: pa.DataType) -> nodes.Node:
        """Return a node that reads a type as the matching branch of the reader's union."""
        branches = arrow_types.branches_of(wants)
        if wrote.kind == "null":
            if len(branches) == len(wants.branches):
                raise UnmatchedError("the reader takes no null here")
            return nodes.NullNode(kind)
        one = arrow_types.wider(branches)
        if one is not None:
            return self.node(wrote, one, around)
        place, node = self._matched(wrote, branches, around)
        return node if len(branches) == 1 else nodes.BranchNode(kind, kind.get_field_index(f"member{place}"), node)

    def _matched(self, wrote: AvroType, branches: list[AvroType], around: Around) -> tuple[int, nodes.Node]:
        """Return the first branch of the same type, else the first branch that can read it, and its node."""
        able = []
        for nth, branch in enumerate(branches):
            if self.kind(branch, around) is None:
                continue
            try:
                node = self.node(wrote, branch, around)
            except UnmatchedError:
                continue
            if branch.kind == wrote.kind and branch.name == wrote.name:
                return nth, node
            able.append((nth, node))
        if not able:
            raise UnmatchedError(f"the reader's union has no branch for {wrote.label}")
        return able[0]

    def _record(self, wrote: AvroType, wants: AvroType, around: Around, kind: pa.StructType) -> nodes.Node:
        _check_names(wrote, wants)
        inside = (*around, wants.name)
        places = {
            field.name: nth for nth, (field, _) in enumerate(arrow_types.record_fields(wants, self._depth, around))
        }
        readers = _readers(wrote, wants)
        steps: list[tuple[nodes.Node, int | None]] = []
        for field in wrote.fields:
            wanted = readers.get(field.name)
            place = None if wanted is None else places.get(wanted.name)
            if wanted is None or place is None:
                steps.append((self._skip(field.type), None))
            else:
                steps.append((self._field(field, wanted, inside), place))
        written = {field.name for field in readers.values()}
        missing: list[tuple[nodes.Node, int]] = []
        for field in wants.fields:
            if field.name in written:
                continue
            if not field.has_default:
                raise UnmatchedError(f"the reader's field {field.name} was not written, and has no default")
            place = places.get(field.name)
            if place is not None:
                default = arrow_types.default_array(field, kind.field(place).type, self._depth, inside)
                missing.append((nodes.ConstantNode(default), place))
        return nodes.RecordNode(kind, steps, missing)

    def _field(self, wrote: AvroField, wants: AvroField, around: Around) -> nodes.Node:
        try:
            return self.node(wrote.type, wants.type, around)
        except _MeaningError as cause:
            raise _MeaningError(cause.reason, f"{wants.name}.{cause.path}".rstrip(".")) from cause

    def _skip(self, wrote: AvroType) -> nodes.Node:
        """Return a node that skips a type that the reader drops."""
        if wrote.kind == "union":
            return nodes.UnionNode(pa.null(), [self._skip(branch) for branch in wrote.branches])
        if wrote.kind == "record":
            known = self._skips.get(wrote.name)
            if known is None:
                known = self._skips[wrote.name] = nodes.SkippedNode()
                known.fields = [self._skip(field.type) for field in wrote.fields]
                known.item_bytes = sum(node.item_bytes for node in known.fields)
            return known
        if wrote.items is not None:
            key = nodes.BytesNode(arrow_types.binary_array) if wrote.kind == "map" else None
            kind = pa.list_(pa.null()) if key is None else pa.map_(pa.string(), pa.null())
            return nodes.ItemsNode(kind, self._skip(wrote.items), key)
        return _leaf(wrote, wrote, arrow_types.arrow_type(wrote, 1))


def _readers(wrote: AvroType, wants: AvroType) -> dict[str, AvroField]:
    """Return the reader's field for each field of the writer: by name, else the first field with such an alias."""
    written = {field.name for field in wrote.fields}
    found = {field.name: field for field in wants.fields if field.name in written}
    for field in wants.fields:
        name = next((alias for alias in field.aliases if alias in written), None)
        if name is not None and field.name not in written:
            found.setdefault(name, field)
    return found


def _leaf(wrote: AvroType, wants: AvroType, kind: pa.DataType) -> nodes.Node:  # noqa: PLR0911 - one for each kind
    given, wanted = wrote.kind, wants.kind
    _check_meaning(wrote, wants)
    if given in _NUMBERS and wanted in _NUMBERS and _NUMBERS.index(given) <= _NUMBERS.index(wanted):
        if given in {"float", "double"}:
            return nodes.PlainNode("<f4" if given == "float" else "<f8", arrow_types.float_converter(kind))
        return nodes.NumberNode(
            arrow_types.whole_number_converter(kind, _unit(wrote, wants, kind), narrow=given == "int")
        )
    if given in _TEXTS and wanted in _TEXTS:
        return nodes.BytesNode(_gather(kind))
    if given != wanted:
        raise UnmatchedError(f"the reader has {wants.label} where the writer has {wrote.label}")
    if given == "null":
        return nodes.NullNode(kind)
    if given == "boolean":
        return nodes.PlainNode("u1", arrow_types.boolean_array)
    _check_names(wrote, wants)
    if given == "enum":
        return nodes.NumberNode(
            arrow_types.enum_converter([name if name in wants.symbols else wants.default for name in wrote.symbols])
        )
    if wrote.size != wants.size:
        raise UnmatchedError(f"{wants.name} has {wants.size} bytes, and {wrote.size} were written")
    if pa.types.is_struct(kind):
        return nodes.BytesNode(arrow_types.duration_gatherer(kind), wrote.size)
    return nodes.BytesNode(arrow_types.uuid_array if pa.types.is_string(kind) else _gather(kind), wrote.size)


def _gather(kind: pa.DataType) -> nodes.Gather:
    if pa.types.is_decimal(kind):
        return arrow_types.decimal_gatherer(kind)
    return arrow_types.binary_array if pa.types.is_binary(kind) else arrow_types.string_array


def _check_meaning(wrote: AvroType, wants: AvroType) -> None:
    """Reject a value that would be read with another meaning, or in a unit that cannot be converted.

    Avro's resolution rules compare only the underlying types, so a day could be read as a millisecond. If one type has
    no logical type, it takes the meaning of the other: a writer that adds or drops the annotation does not change the
    values.
    """
    given, wanted = _meaning(wrote), _meaning(wants)
    if given is None or wanted is None:
        # A string cannot be read as the bytes of a decimal, or the other way round.
        if "decimal" in {given, wanted} and wrote.kind != wants.kind and "string" in {wrote.kind, wants.kind}:
            raise _MeaningError(f"the reader has {_words(wants)} where the writer has {_words(wrote)}")
        return
    scales = [of.attributes.get("scale", 0) for of in (wrote, wants)] if given == "decimal" else [0, 0]
    # A column of nanoseconds is a plain number in the writer's unit.
    nanos = [(of.logical or "").endswith("-nanos") for of in (wrote, wants)]
    if given != wanted or scales[0] != scales[1] or (nanos[1] and not nanos[0]):
        raise _MeaningError(f"the reader has {_words(wants)} where the writer has {_words(wrote)}")


def _meaning(of: AvroType) -> str | None:
    """Return the meaning of a type's logical type; None if Avro does not define one."""
    return _MEANINGS.get((of.kind, of.logical or ""))


def _words(of: AvroType) -> str:
    scale = f" of scale {of.attributes.get('scale', 0)}" if of.logical == "decimal" else ""
    return f"{of.label} ({of.logical}{scale})" if of.logical else of.label


def _unit(wrote: AvroType, wants: AvroType, kind: pa.DataType) -> int:
    """Return the microseconds per unit of a time, in the writer's unit if its schema names one, else the reader's."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        return 1
    said = (wrote.logical or "").rpartition("-")[2]
    return _UNITS.get(said) or _UNITS.get((wants.logical or "").rpartition("-")[2], 1)


def _check_names(wrote: AvroType, wants: AvroType) -> None:
    """Reject types of different names. Namespaces are ignored, as in Avro's libraries, except in aliases."""
    same = wrote.name.rpartition(".")[2] == wants.name.rpartition(".")[2]
    if not same and wrote.name not in wants.aliases:
        raise UnmatchedError(f"the reader has {wants.name} where the writer has {wrote.name}")


class AvroReader:
    """Reader of Avro values as columns; see `reader_of`."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._wants = parse_avro(schema, source.referenced(schema), strict=False)
        self.columns = arrow_types.columns_of(self._wants, depth)
        self.is_record = self._wants.kind == "record"

    def of(self, schema: Schema) -> ValueReader:
        """Return a reader of values written with an Avro schema; see `ColumnReader.of`."""
        check_type(schema, "AVRO")
        wrote = parse_avro(schema, self._source.referenced(schema), strict=False)
        node = plan(wrote, self._wants, self._depth)

        def read(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
            cursor = Cursor(data, starts, ends)
            found = node.read(cursor, np.arange(len(starts)))
            cursor.finish()
            bad = np.flatnonzero(cursor.problem)
            return found, {int(row): cursor.problems[cursor.problem[row]] or "" for row in bad}

        return read

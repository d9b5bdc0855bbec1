"""Avro plan: a writer's and a reader's schema in, the nodes that read the one as the columns of the other, out.

Avro's rules of resolution, once for each pair of schemas: fields by name or alias, defaults for what the writer does
not have, numbers that grow, enums with a default, unions. A pair that cannot be is an error of the values that have
it: a branch of a union that the reader does not know, say, is one of those values alone.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.schemas.arrow import avro_leaves as leaves
from kafkalike.schemas.arrow.avro_defaults import default_of
from kafkalike.schemas.arrow.avro_nodes import (
    Bytes,
    Constant,
    Items,
    Member,
    Node,
    Nothing,
    Number,
    Plain,
    Record,
    Skipped,
    Union,
)
from kafkalike.schemas.arrow.avro_types import VALUE, ArrowTypes, AvroSchema, Type, branches_of, leaf

_RECORDS: Final = frozenset({"record", "error"})
_NUMBERS: Final = ("int", "long", "float", "double")
_TEXTS: Final = frozenset({"string", "bytes"})
_MILLIS: Final = frozenset({"time-millis", "timestamp-millis", "local-timestamp-millis"})


class UnmatchedError(Exception):
    """The reader cannot read what the writer wrote; the text says why."""


def plan(writer: AvroSchema, reader: AvroSchema, depth: int) -> Node:
    """What reads values of the writer's schema as structs of the reader's columns.

    Raises:
        UnmatchedError: the reader can read none of them.
    """
    types = ArrowTypes(reader, depth)
    columns = types.columns()
    node = _Plan(writer, types).node(writer.top, reader.top, ())
    if columns.names == [VALUE] and not _is_record(reader.resolved(reader.top)):
        return Record(pa.struct(list(columns)), [(node, 0)], [])
    return node


class _Plan:
    def __init__(self, writer: AvroSchema, types: ArrowTypes) -> None:
        self._writer = writer
        self._types = types
        self._reader = types.schema
        self._skips: dict[str, Skipped] = {}

    def node(self, wrote: Type, wants: Type, around: tuple[str, ...]) -> Node:
        wrote, wants = self._writer.resolved(wrote), self._reader.resolved(wants)
        kind = self._types.of(wants, around)
        if kind is None:
            raise IllegalArgumentError("what has no column is not read")
        if isinstance(wrote, list):
            return Union(kind, [self._branch(branch, wants, around, kind) for branch in wrote])
        if isinstance(wants, list):
            return self._chosen(wrote, wants, around, kind)
        if _is_record(wrote) and _is_record(wants):
            return self._record(wrote, wants, around, kind)
        if wrote["type"] == wants["type"] == "array":
            return Items(kind, self.node(wrote["items"], wants["items"], around))
        if wrote["type"] == wants["type"] == "map":
            return Items(kind, self.node(wrote["values"], wants["values"], around), Bytes(leaves.text))
        return self._leaf(wrote, wants, kind)

    def _branch(self, branch: Type, wants: Type, around: tuple[str, ...], kind: pa.DataType) -> Node | str:
        if self._writer.resolved(branch) in ("null", {"type": "null"}) and isinstance(wants, list):
            return Nothing(kind)
        try:
            return self.node(branch, wants, around)
        except UnmatchedError as cause:
            return str(cause)

    def _chosen(self, wrote: Type, wants: list[Type], around: tuple[str, ...], kind: pa.DataType) -> Node:
        """The branch of the reader's union that a type of the writer's goes into."""
        branches = branches_of(wants)
        if wrote["type"] == "null":
            if len(branches) == len(wants):
                raise UnmatchedError("the reader takes no null here")
            return Nothing(kind)
        if self._types.merged(branches) is not None:
            name = next(name for name in ("double", "long") if {"type": name} in map(self._reader.resolved, branches))
            return self.node(wrote, {"type": name}, around)
        place = self._match(wrote, branches, around)
        if len(branches) == 1:
            return self.node(wrote, branches[place], around)
        return Member(kind, kind.get_field_index(f"member{place}"), self.node(wrote, branches[place], around))

    def _match(self, wrote: Type, branches: list[Type], around: tuple[str, ...]) -> int:
        """The first branch of the same type, else the first that can read it."""
        able = []
        for nth, branch in enumerate(branches):
            wants = self._reader.resolved(branch)
            if self._types.of(wants, around) is None:
                continue
            try:
                self.node(wrote, wants, around)
            except UnmatchedError:
                continue
            if wants["type"] == wrote["type"] and wants.get("name") == wrote.get("name"):
                return nth
            able.append(nth)
        if not able:
            raise UnmatchedError(f"the reader's union has no branch for {_shown(wrote)}")
        return able[0]

    def _record(
        self, wrote: dict[str, Any], wants: dict[str, Any], around: tuple[str, ...], kind: pa.StructType
    ) -> Node:
        _check_names(wrote, wants)
        inside = (*around, wants["name"])
        places = {field["name"]: nth for nth, (field, _) in enumerate(self._types.fields(wants, around))}
        steps: list[tuple[Node, int | None]] = []
        found = set()
        readers = {field["name"]: field for field in wants["fields"]}
        for alias, field in [(alias, field) for field in wants["fields"] for alias in field.get("aliases", ())]:
            readers.setdefault(alias, field)
        for field in wrote["fields"]:
            wanted = readers.get(field["name"])
            if wanted is None or wanted["name"] in found:
                steps.append((self._skip(field["type"]), None))
                continue
            found.add(wanted["name"])
            place = places.get(wanted["name"])
            if place is None:
                steps.append((self._skip(field["type"]), None))
            else:
                steps.append((self.node(field["type"], wanted["type"], inside), place))
        missing: list[tuple[Node, int]] = []
        for field, field_kind in self._types.fields(wants, around):
            if field["name"] not in found:
                if "default" not in field:
                    raise UnmatchedError(f"the reader's field {field['name']} is not written, and has no default")
                value = default_of(self._types, field["type"], field["default"], inside)
                missing.append((Constant(pa.array([value], field_kind)), places[field["name"]]))
        return Record(kind, steps, missing)

    def _leaf(self, wrote: dict[str, Any], wants: dict[str, Any], kind: pa.DataType) -> Node:
        given, wanted = wrote["type"], wants["type"]
        if given in _NUMBERS and wanted in _NUMBERS and _NUMBERS.index(given) <= _NUMBERS.index(wanted):
            if given in {"float", "double"}:
                return Plain("<f4" if given == "float" else "<f8", leaves.floating(kind))
            return Number(leaves.whole(kind, self._factor(wrote, wants), narrow=given == "int"))
        if given in _TEXTS and wanted in _TEXTS:
            return Bytes(self._gather(kind))
        if given != wanted:
            raise UnmatchedError(f"the reader has {_shown(wants)} where the writer has {_shown(wrote)}")
        if given == "null":
            return Nothing(kind)
        if given == "boolean":
            return Plain("u1", leaves.truth)
        if given == "enum":
            _check_names(wrote, wants)
            known, fallback = set(wants["symbols"]), wants.get("default")
            return Number(leaves.symbols([name if name in known else fallback for name in wrote["symbols"]]))
        if given == "fixed":
            _check_names(wrote, wants)
            if wrote["size"] != wants["size"]:
                raise UnmatchedError(f"{wants['name']} has {wants['size']} bytes, and {wrote['size']} were written")
            return Bytes(self._fixed(kind), wrote["size"])
        raise UnmatchedError(f"{given} is no type of Avro's")

    @staticmethod
    def _gather(kind: pa.DataType) -> Any:  # noqa: ANN401
        if pa.types.is_decimal(kind):
            return leaves.decimal(kind)
        return leaves.raw if pa.types.is_binary(kind) else leaves.text

    def _fixed(self, kind: pa.DataType) -> Any:  # noqa: ANN401
        if pa.types.is_struct(kind):
            return leaves.duration(kind)
        return leaves.uuid if pa.types.is_string(kind) else self._gather(kind)

    @staticmethod
    def _factor(wrote: dict[str, Any], wants: dict[str, Any]) -> int:
        """Units of the reader's array in one of the writer's: by the reader's type, as Avro reads by position only."""
        del wrote
        logical = wants.get("logicalType")
        return 1000 if logical in _MILLIS and not pa.types.is_integer(leaf(wants)) else 1

    def _skip(self, wrote: Type) -> Node:
        """What goes past a type that nobody wants."""
        wrote = self._writer.resolved(wrote)
        if isinstance(wrote, list):
            return Union(pa.null(), [self._skip(branch) for branch in wrote])
        if _is_record(wrote):
            known = self._skips.get(wrote["name"])
            if known is None:
                known = self._skips[wrote["name"]] = Skipped()
                known.fields = [self._skip(field["type"]) for field in wrote["fields"]]
                known.item_bytes = sum(node.item_bytes for node in known.fields)
            return known
        if wrote["type"] == "array":
            return Items(pa.list_(pa.null()), self._skip(wrote["items"]))
        if wrote["type"] == "map":
            return Items(pa.map_(pa.string(), pa.null()), self._skip(wrote["values"]), Bytes(leaves.raw))
        bare = {name: value for name, value in wrote.items() if name != "logicalType"}
        return self._leaf(bare, bare, leaf(bare))


def _is_record(kind: Type) -> bool:
    return isinstance(kind, dict) and kind["type"] in _RECORDS


def _check_names(wrote: dict[str, Any], wants: dict[str, Any]) -> None:
    """Refuse named types that are not the same: by the last part of the name, or an alias of the reader's."""
    name = wrote["name"].rpartition(".")[2]
    if name not in {known.rpartition(".")[2] for known in (wants["name"], *wants.get("aliases", ()))}:
        raise UnmatchedError(f"the reader has {wants['name']} where the writer has {wrote['name']}")


def _shown(kind: Type) -> str:
    return str(kind.get("name", kind["type"])) if isinstance(kind, dict) else "a union"

"""Compatibility of Avro schemas by Avro's rules of schema resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from kafkalike.model.schemas.schema import Resolve, Schema
from kafkalike.schemas.avro_schema import AvroField, AvroType, parse_avro
from kafkalike.schemas.limits import no_deeper_than_the_stack

_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Other types that each type can read."""


def problems(new: Schema, old: Schema, resolve: Resolve) -> list[str]:
    """Return the reasons why a reader with schema `new` cannot read records written with schema `old`.

    Returns:
        One sentence per incompatibility, starting with the path in the reader's schema; empty if compatible.

    Raises:
        InvalidSchemaError: a schema is not a valid Avro schema.
    """
    with no_deeper_than_the_stack():
        reader = parse_avro(new, resolve(new), strict=False)
        writer = parse_avro(old, resolve(old), strict=False)
        return _Comparison().problems(reader, writer, reader.name or reader.kind)


class _Comparison:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[str]] = {}
        self._named: dict[int, dict[str, list[AvroType]]] = {}
        """Branches of each union, by the id of the union and by their unqualified names and aliases."""

    def problems(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """Return the problems of a pair; a pair compared by a caller up the stack has none.

        For a pair compared before, only the first problem is returned; otherwise types that use others twice would
        return 2 to the power of their depth.
        """
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair][:1]
        self._known[pair] = []
        self._known[pair] = found = self._found(reader, writer, path)
        return found

    def _found(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:  # noqa: PLR0911 - one for each kind
        if writer.kind == "union":
            return self._of_each_branch(reader, writer, path)
        if reader.kind == "union":
            return self._of_any_branch(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return []
            return [f"{path}: {reader.label} cannot read {writer.label}"]
        if reader.kind == "array":
            return self.problems(_items(reader), _items(writer), f"{path}[]")
        if reader.kind == "map":
            return self.problems(_items(reader), _items(writer), f"{path}{{}}")
        if reader.name:
            return (
                _of_names(reader, writer, path)
                + self._of_named(reader, writer, path)
                + _of_scales(reader, writer, path)
            )
        return _of_scales(reader, writer, path)

    def _of_each_branch(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        return [
            problem
            for branch in writer.branches
            for problem in (
                self._of_any_branch(reader, branch, path)
                if reader.kind == "union"
                else self.problems(reader, branch, path)
            )
        ]

    def _of_any_branch(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """Return an error if no branch of the reader fits, with the problems of the branch of the writer's type."""
        best: list[str] = []
        for branch in self._candidates(reader, writer):
            found = self.problems(branch, writer, f"{path}|{branch.name or branch.kind}")
            if not found:
                return []
            if branch.kind == writer.kind:
                best = best or found
        return [f"{path}: no branch of the union can read {writer.label}", *best]

    def _candidates(self, union: AvroType, writer: AvroType) -> Sequence[AvroType]:
        """Return the branches that may read a type: several named types, but at most one branch of each other."""
        known = self._named.get(id(union))
        if known is None:
            known = self._named[id(union)] = {}
            for branch in union.branches:
                for name in {branch.name.rpartition(".")[2], *branch.aliases}:
                    known.setdefault(name, []).append(branch)
        if not writer.name:
            return known.get("", [])
        found = [*known.get(writer.name.rpartition(".")[2], ()), *known.get(writer.name, ())]
        # Without a match, one branch for the error message.
        return found or list(islice((branch for branch in union.branches if branch.kind == writer.kind), 1))

    def _of_named(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            return [f"{path}: {reader.size} bytes are read where {writer.size} were written"]
        if reader.kind == "enum":
            known = set(reader.symbols)
            missing = [symbol for symbol in writer.symbols if symbol not in known]
            if not missing or reader.default is not None:
                return []
            return [f"{path}: the enum lacks {', '.join(missing)}, and has no default for what it lacks"]
        written = {field.name: field for field in writer.fields}
        return [
            problem for field in reader.fields for problem in self._of_field(field, written, f"{path}.{field.name}")
        ]

    def _of_field(self, field: AvroField, written: Mapping[str, AvroField], path: str) -> list[str]:
        for name in (field.name, *field.aliases):
            if name in written:
                return self.problems(field.type, written[name].type, path)
        return [] if field.has_default else [f"{path}: it was not written, and has no default"]


def _of_names(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    """Return an error for different names; as in Avro's libraries, namespaces only count in aliases."""
    same = reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]
    if same or writer.name in reader.aliases:
        return []
    return [f"{path}: {reader.label} cannot read {writer.label}, and has no such alias"]


def _of_scales(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    """Return an error for decimals of different scales, because only the unscaled number is encoded."""
    if reader.logical != "decimal" or writer.logical != "decimal":
        return []
    read, wrote = reader.attributes.get("scale", 0), writer.attributes.get("scale", 0)
    return [] if read == wrote else [f"{path}: a decimal of scale {read} misreads one of scale {wrote}"]


def _items(of: AvroType) -> AvroType:
    assert of.items is not None
    return of.items

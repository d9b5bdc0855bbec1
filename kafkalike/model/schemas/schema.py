"""Schemas of a registry as values, their levels, modes and subject strategies, and the rule of identity.

Identical schemas have the same id. White space in an Avro or JSON Schema does not matter, because readers never see it:
the text is kept as compact JSON. An Avro schema is kept in the form in which Avro's Java library prints schemas, as
Confluent's registry does: keys in a fixed order, no defaults, names without the enclosing namespace, none of Avro's own
keys where they have no meaning; additional properties, such as logical types, keep their order. The keys of a JSON
Schema keep the order in which they were written. The text of a Protobuf schema is compared as it is, without the white
space around it.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn, get_args

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]

SCHEMA_TYPES: Final[tuple[SchemaType, ...]] = get_args(SchemaType)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to another registered one."""

    name: str
    """Its name in the schema's text: an Avro full name, a `.proto` file to import, a JSON Schema `$ref`."""
    subject: str
    """Subject under which the other schema is registered."""
    version: int
    """Version in that subject, from 1."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema in the form in which a client sent it. Equal ones have the same id in a registry."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a version of a subject."""

    subject: str
    version: int
    """Number of the version, from 1."""
    id: int
    """Id of the schema, the same in all subjects; records start with it."""
    schema: Schema
    deleted: bool = False
    """True after a soft deletion: the version keeps its number, and records with its id can still be read."""


Resolve = Callable[[Schema], Mapping[str, Schema]]
"""Returns the schemas that a schema uses; see `RegistryState.referenced`."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Functions that know Avro, Protobuf and JSON Schema. They are pure and may be called again."""

    check: Callable[[Schema, Resolve], None]
    """Raises ValueError if a text is not a schema of its type, or uses an undefined name."""
    normalized: Callable[[Schema], Schema]
    """Returns the normal form, which is the same for all schemas with the same meaning; raises ValueError as `check`
    does."""
    problems: Callable[[Schema, Schema, Resolve], Sequence[str]]
    """Returns reasons why a reader with the first schema cannot read data of the second one; empty if it can."""


def remembered(checks: Checks) -> Checks:
    """Cache the results of checks by schema, for a plan that may be computed several times.

    The references of a schema never change, so the schemas alone determine the results.
    """
    checked: set[Schema] = set()
    normal: dict[Schema, Schema] = {}
    found: dict[tuple[Schema, Schema], Sequence[str]] = {}

    def check(schema: Schema, resolve: Resolve) -> None:
        if schema not in checked:
            checks.check(schema, resolve)
            checked.add(schema)

    def normalized(schema: Schema) -> Schema:
        if schema not in normal:
            normal[schema] = checks.normalized(schema)
        return normal[schema]

    def problems(new: Schema, old: Schema, resolve: Resolve) -> Sequence[str]:
        if (new, old) not in found:
            found[new, old] = checks.problems(new, old, resolve)
        return found[new, old]

    return Checks(check, normalized, problems)


BACKWARD: Final = "BACKWARD"
NONE: Final = "NONE"

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"

SETTABLE_MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
MODES: Final = (*SETTABLE_MODES, FORWARD)
READ_ONLY_MODES: Final = frozenset({READONLY, READONLY_OVERRIDE, FORWARD})
"""Modes in which nothing may be changed. FORWARD is for registries that pass changes on to another one, which does not
exist here; it cannot be set, but older releases have set it."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Requirements of a compatibility level for a new version."""

    backward: bool = False
    """The new schema must read data of the old ones."""
    forward: bool = False
    """The old schemas must read data of the new one."""
    transitive: bool = False
    """Compare with all versions instead of the last one."""


LEVELS: Final = {
    NONE: Demands(),
    BACKWARD: Demands(backward=True),
    "BACKWARD_TRANSITIVE": Demands(backward=True, transitive=True),
    "FORWARD": Demands(forward=True),
    "FORWARD_TRANSITIVE": Demands(forward=True, transitive=True),
    "FULL": Demands(backward=True, forward=True),
    "FULL_TRANSITIVE": Demands(backward=True, forward=True, transitive=True),
}
"""Confluent's levels by name."""


def compact(schema: Schema, *, ordered: bool = True) -> Schema:
    """Return the schema with its text in the form in which it is kept.

    Args:
        schema: the schema as a client sent it.
        ordered: put the keys of an Avro schema in order. False for a schema that already has an id elsewhere, where
            schemas that differ only in order may have two ids.

    Raises:
        ValueError, RecursionError: the text cannot be encoded as UTF-8, an Avro or JSON Schema is not JSON, or it is
            nested too deeply.
    """
    bare = schema.text.strip()
    if schema.type == "PROTOBUF":
        text = bare
    elif schema.type == "AVRO":
        value = bare if bare in AVRO_PRIMITIVES else parsed_json(bare)
        text = json_text(canonical(value) if ordered else value)
    else:
        text = json_text(parsed_json(bare))
    text.encode()  # half of a surrogate pair cannot be stored
    return schema if text == schema.text else replace(schema, text=text)


def parsed_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse strict JSON.

    Raises:
        ValueError, RecursionError: the text is not JSON.
    """
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def json_text(value: object, *, sort_keys: bool = False) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)


def fingerprint(schema: Schema) -> bytes:
    """Return the identity of a schema: a SHA-256 of its type, text and references.

    Args:
        schema: schema whose text is in the form of `compact`.
    """
    references = [[r.name, r.subject, r.version] for r in schema.references]
    # ASCII, so that a text that cannot be encoded as UTF-8 has a fingerprint too.
    said = json.dumps([schema.type, schema.text, references])
    return hashlib.sha256(said.encode()).digest()


def guid_of(mark: bytes) -> str:
    """Return the GUID of a schema, which is the same in every root because it depends on the schema alone.

    Args:
        mark: its `fingerprint`.
    """
    return str(uuid.UUID(bytes=mark[:16], version=5))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


AVRO_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
"""Names that are schemas by themselves; some clients send them without quotes."""

_NAMED: Final = {"record": "fields", "error": "fields", "enum": "symbols", "fixed": "size"}
"""Kinds of named types, and the key of the content of each."""
_INSIDE: Final = {"array": "items", "map": "values"}
_OF_TYPES: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_OF_FIELDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


def canonical(value: Any, *, sort_added: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema in the form in which it is kept; invalid parts stay, so that checks can report them.

    Args:
        value: the schema's JSON.
        sort_added: sort keys that are not Avro's by name.

    Raises:
        RecursionError: it is nested too deeply.
    """
    return _Text(sort_added=sort_added).type(value, "")


class _Text:
    def __init__(self, *, sort_added: bool) -> None:
        self._sort_added = sort_added

    def type(self, value: Any, around: str) -> Any:  # noqa: ANN401, PLR0911 - any JSON; a return for each kind
        """Return a type inside the namespace `around`."""
        if isinstance(value, str):
            return _short(value, around)
        if isinstance(value, list):
            return [self.type(branch, around) for branch in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if not isinstance(kind, str):
            return {**value, "type": self.type(kind, around)} if "type" in value else value
        if kind in AVRO_PRIMITIVES:
            added = self._added(value, _OF_TYPES)
            return {"type": kind, **added} if added else kind
        if kind in _INSIDE:
            part = _INSIDE[kind]
            if part not in value:
                return value
            return {"type": kind, part: self.type(value[part], around), **self._added(value, _OF_TYPES)}
        return self._named(kind, value, around) if kind in _NAMED else _short(kind, around)

    def _named(self, kind: str, value: dict[str, Any], around: str) -> Any:  # noqa: ANN401 - any JSON
        name, space, part = value.get("name"), value.get("namespace"), _NAMED[kind]
        if not isinstance(name, str) or not isinstance(space, str | None) or part not in value:
            return value
        before, dot, last = name.rpartition(".")
        space = before if dot else around if space is None else space
        made: dict[str, Any] = {"type": kind, "name": last}
        if space != around:
            made["namespace"] = space
        if isinstance(value.get("doc"), str):
            made["doc"] = value["doc"]
        fields = value[part]
        in_list = part == "fields" and isinstance(fields, list)
        made[part] = [self._field(field, space) for field in fields] if in_list else fields
        own = _OF_TYPES
        if kind == "enum":
            own |= {"default"}
            if value.get("default") is not None:
                made["default"] = value["default"]
        made |= self._added(value, own)
        aliases = value.get("aliases")
        if isinstance(aliases, list):
            aliases = [_short(alias, space) if isinstance(alias, str) else alias for alias in aliases]
        return {**made, "aliases": aliases} if aliases else made

    def _field(self, value: Any, around: str) -> Any:  # noqa: ANN401 - any JSON
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "type" not in value:
            return value
        made = {"name": value["name"], "type": self.type(value["type"], around)}
        if isinstance(value.get("doc"), str):
            made["doc"] = value["doc"]
        if "default" in value:
            made["default"] = value["default"]
        order = value.get("order")
        order = order.lower() if isinstance(order, str) else order
        if order is not None and order != "ascending":
            made["order"] = order
        if value.get("aliases"):
            made["aliases"] = value["aliases"]
        return {**made, **self._added(value, _OF_FIELDS)}

    def _added(self, value: dict[str, Any], own: frozenset[str]) -> dict[str, Any]:
        added = [key for key in value if key not in own]
        return {key: value[key] for key in (sorted(added) if self._sort_added else added)}


def _short(name: str, around: str) -> str:
    """Return a name without its namespace if that is the enclosing one."""
    space, dot, last = name.rpartition(".")
    return last if dot and space == around and last not in AVRO_PRIMITIVES else name

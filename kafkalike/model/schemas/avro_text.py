"""Avro text: an Avro schema's JSON in, the same in the one form in which schemas are kept, out.

It is the form in which Avro's Java library prints schemas, which Confluent's registry keeps: keys in a fixed order,
nothing that says what holds without it, names without the namespace around them, no keys of Avro's own where they
mean nothing. What somebody adds to a schema, such as logical types, stays in its order.
"""

from __future__ import annotations

from typing import Any, Final

AVRO_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
"""Their names alone are schemas, which some clients send without quotes."""

_NAMED: Final = {"record": "fields", "error": "fields", "enum": "symbols", "fixed": "size"}
"""Kinds of types with names, and the key of what makes each."""
_INSIDE: Final = {"array": "items", "map": "values"}
_OF_TYPES: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_OF_FIELDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


def canonical(value: Any, *, sort_added: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """A schema in the form that is kept; what is no schema stays as it is, so that checks can say what is wrong.

    Args:
        value: the schema's JSON.
        sort_added: whether keys that are not Avro's go by their names.

    Raises:
        RecursionError: it is nested too deeply.
    """
    return _Text(sort_added=sort_added).type(value, "")


class _Text:
    def __init__(self, *, sort_added: bool) -> None:
        self._sort_added = sort_added

    def type(self, value: Any, around: str) -> Any:  # noqa: ANN401, PLR0911 - any JSON; a return for each kind
        """A type that stands in a namespace."""
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
    """A name without its namespace, where that is the one around it."""
    space, dot, last = name.rpartition(".")
    return last if dot and space == around and last not in AVRO_PRIMITIVES else name
